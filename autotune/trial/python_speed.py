"""Measures how fast a rank's processor runs Python: the host's counterpart of a GPU's clock.

Two virtual processors that share a core slow each other down by half or more, and `/proc` does not
show it; steps that wait for Python slow down with them.
"""

import time

_ITERATIONS = 20_000
"""About a millisecond."""


def host_loop_s() -> float:
    """Return the seconds of processor time that a fixed loop of Python takes this thread now.

    This is the thread that runs forward; backward runs in another, possibly on another processor.
    Processor time does not include waiting for a processor. The loop allocates nothing that the
    garbage collector counts: it would interrupt the next step earlier.
    """
    total = 0
    began = time.thread_time()
    for number in range(_ITERATIONS):
        total ^= number
    return time.thread_time() - began
