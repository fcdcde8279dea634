"""SIGTERM, which schedulers send before they kill, ends what is under way as Ctrl-C does."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_CLOSING_S = 20.0
"""More than it takes to end what a pool runs, and the pool."""


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM while the context lasts, but once in a while only.

    Around the pool, if there is one, so that no second signal ends its closing half-way: `timeout`
    sends one to its child and one to the child's group.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupted_at = -math.inf

    def interrupt(_signum: int, _frame: FrameType | None) -> None:
        nonlocal interrupted_at
        # Not for good: an exception that is raised within a destructor is lost.
        if time.monotonic() - interrupted_at > _CLOSING_S:
            interrupted_at = time.monotonic()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
