"""How fast a rank's processor runs Python at this moment: the host's counterpart of a GPU's clock.

Virtual processors that share a core slow each other by half, unseen by `/proc/cpuinfo` or `nice`,
and steps that wait for Python slow down with them.
"""

import time

_ITERATIONS = 8_000
"""About a millisecond, which no step of a GPU is short beside."""


def host_loop_s() -> float:
    """Return the seconds of processor time that a fixed loop of Python takes this thread now.

    It tells of the thread that runs forward; backward's is another, perhaps on another processor.
    Processor time, so that waiting for a processor does not count: only how fast it runs.
    """
    table = {}
    began = time.thread_time()
    for number in range(_ITERATIONS):
        table[number & 1023] = (number, number + 1)
    return time.thread_time() - began
