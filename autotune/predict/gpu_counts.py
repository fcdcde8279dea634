"""The smallest number of GPUs on which something fits."""

from collections.abc import Callable

MAX_GPUS = 4_096
COUNTS: tuple[int, ...] = (1, 2, 4, *range(8, MAX_GPUS + 1, 8))
"""Numbers of GPUs that people rent: 1, 2, 4, and whole nodes of 8."""


def smallest_fitting(fits: Callable[[int], bool]) -> int | None:
    """Return the smallest of `COUNTS` that fits; None if 4,096 GPUs do not.

    Args:
        fits: whether a number of GPUs fits; taken to stay true once it is.
    """
    if not fits(COUNTS[-1]):
        return None
    low, high = 0, len(COUNTS) - 1
    while low < high:
        middle = (low + high) // 2
        if fits(COUNTS[middle]):
            high = middle
        else:
            low = middle + 1
    return COUNTS[low]
