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
    """Raise KeyboardInterrupt on SIGTERM as on Ctrl-C, but on either once in a while only.

    Around the pool, if there is one, so that no second signal ends its closing half-way: `timeout`
    sends one to its child and one to the child's group, and people press Ctrl-C again.
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

    # Not where Ctrl-C is ignored, as in what a shell put behind.
    heard = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        heard.append(signal.SIGINT)
    before = {signum: signal.signal(signum, interrupt) for signum in heard}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
