"""How fast a rank's processor runs Python at this moment: the host's counterpart of a GPU's clock.

Two virtual processors that share a core slow each other down by half or more, and nothing in
`/proc` tells; steps that wait for Python slow down with them.
"""

import time

_ITERATIONS = 20_000
"""About a millisecond."""


def host_loop_s() -> float:
    """Return the seconds of processor time that a fixed loop of Python takes this thread now.

    It tells of the thread that runs forward; backward's is another, perhaps on another processor.
    Processor time, so that waiting for a processor does not count, only how fast it runs. Nothing
    is made that the garbage collector counts: it would stop the next step earlier.
    """
    total = 0
    began = time.thread_time()
    for number in range(_ITERATIONS):
        total ^= number
    return time.thread_time() - began
