"""The smallest limit of the allocator under which a job still runs: its peak, and fragmentation."""

from collections.abc import Callable

from autotune.predict.memory.replay import Replayed, replay
from autotune.predict.program.events import Program
from autotune.predict.training_job import Training

TOLERANCE = 0.003
"""Of the allocated peak: how exactly the limit is found."""
LOOK_ABOVE = (1.01, 1.02)
"""Whether a job fits is not monotonic in the limit, since the limit determines when the cache is
freed. Limits this far above one that fits have to fit too."""
_GROWTH = 1.05


def smallest_limit(
    training: Training,
    program: Program,
    *,
    workspace_bytes: int,
    unlimited: Replayed,
    card_bytes: int | None = None,
) -> int:
    """Return the smallest limit of the allocator under which a job runs, in bytes.

    Needs a dozen replays. The job also fits slightly above the limit.

    Args:
        training: the job.
        program: one micro step of its model.
        workspace_bytes: one cuBLAS workspace on the device.
        unlimited: its replay without a limit.
        card_bytes: the most that the driver could give the allocator; None for no limit.
    """

    def fits(limit_bytes: int) -> bool:
        return replay(
            training,
            program,
            workspace_bytes=workspace_bytes,
            limit_bytes=limit_bytes,
            card_bytes=card_bytes,
            rank=unlimited.rank,
        ).fits

    peak = unlimited.peak_allocated_bytes
    low, high = peak - 1, max(unlimited.peak_reserved_bytes, unlimited.init_reserved_bytes)
    while not fits(high):
        high = round(high * _GROWTH)
    while True:
        found = _bisect(fits, low, high, round(peak * TOLERANCE))
        above = (round(found * factor) for factor in LOOK_ABOVE)
        hole = next((limit for limit in above if limit < high and not fits(limit)), None)
        if hole is None:
            return found
        low = hole


def _bisect(fits: Callable[[int], bool], low: int, high: int, tolerance: int) -> int:
    """Return a limit that fits, less than the tolerance above one that does not."""
    while high - low > tolerance:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle
    return high
