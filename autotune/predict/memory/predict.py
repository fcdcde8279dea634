"""The two entry points: prediction by replay, and screening by closed form."""

from dataclasses import dataclass
from typing import Self

from autotune.job.ceiling import GIB
from autotune.job.device import Device
from autotune.predict.memory import error_margins
from autotune.predict.memory.closed_form import estimate_closed_form
from autotune.predict.memory.estimate import (
    DeviceEstimate,
    HostEstimate,
    MemoryEstimate,
    UnderCeiling,
)
from autotune.predict.memory.host import host_memory
from autotune.predict.memory.peak_rank import peak_ranks
from autotune.predict.memory.replay import Replayed, replay
from autotune.predict.memory.smallest_limit import smallest_limit
from autotune.predict.memory.summary import weigh
from autotune.predict.program.events import Parameter, Program
from autotune.predict.program.families import is_traced
from autotune.predict.program.families import program as program_of
from autotune.predict.training_job import Training

CONTEXT_BYTES = int(0.817 * GIB)
"""Driver context and libraries on an H200, the same in every measured row."""
NCCL_BYTES = int(0.99 * GIB)
"""Communicators' buffers in addition: the maximum between two H200."""
HOST_MARGIN = 0.05
"""Fraction of the host's total: no offload row was predicted more than 5 % low."""
HOST_UNMEASURED_MARGIN = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The device and host that a rank runs on."""

    device: Device
    ceiling_bytes: int | None = None
    """The most that a rank may use as the driver sees it; None for no verdict."""
    local_ranks: int = 1
    """Ranks that share a host."""
    host_bytes: int | None = None
    """Memory of one host; None for no verdict on it."""
    emulated: bool = False
    """Whether the rank runs alone, without real communicators."""
    rank: int | None = None
    """The rank to predict; None for the one that needs the most."""


def predict_memory(
    training: Training,
    surroundings: Surroundings,
    *,
    program: Program | None = None,
    find_limit: bool = False,
) -> MemoryEstimate:
    """Predict one rank's memory by replaying its tensors; tens of milliseconds.

    With a ceiling the job is replayed under it, since an allocator at its limit frees its cache,
    and a fragmented one runs out before the peak.

    Args:
        training: the job.
        surroundings: device, ceiling and host.
        program: a traced micro step; None uses the family's, or traces it.
        find_limit: also find the smallest ceiling under which it runs, in a dozen more replays.

    Raises:
        WorkloadError: the model has to be traced, and cannot be.
    """
    outside = outside_bytes(training, emulated=surroundings.emulated)
    replays = Replays.of(training, surroundings.device, outside_bytes=outside, program=program)
    rank = surroundings.rank
    found = replays.of_peak_rank() if rank is None else replays.of_rank(rank)
    margin = error_margins.margin(training)
    limit_bytes = replays.smallest_limit(found) if find_limit else None
    judged = None
    if surroundings.ceiling_bytes is not None:
        allowed = surroundings.ceiling_bytes - outside
        judged = replays.judge(found, limit_bytes=allowed, margin=margin)
        if limit_bytes is not None and judged.fits:
            limit_bytes = min(limit_bytes, int(allowed / (1 + margin)))
    device = DeviceEstimate(
        items=found.peak.items,
        part=found.peak.part.value,
        detail=found.peak.detail,
        peak_allocated_bytes=found.peak_allocated_bytes,
        peak_reserved_bytes=found.peak_reserved_bytes,
        init_allocated_bytes=found.init_allocated_bytes,
        init_reserved_bytes=found.init_reserved_bytes,
        outside_bytes=outside,
        margin=margin,
        ceiling_bytes=surroundings.ceiling_bytes,
        limit_bytes=limit_bytes,
        judged=judged,
        parts=tuple(found.peaks.values()),
        rank=found.rank,
    )
    method = "traced" if program or is_traced(training) else "replay"
    return _estimate(training, surroundings, device, replays.program.parameters, method=method)


def peak_rank(training: Training, device: Device) -> int:
    """Return the rank that needs the most: the one to emulate.

    Raises:
        WorkloadError: the model has to be traced, and cannot be.
    """
    return Replays.of(training, device, outside_bytes=0).of_peak_rank().rank


def screen_memory(training: Training, surroundings: Surroundings) -> MemoryEstimate:
    """Predict one rank's memory by formulas; a fraction of a millisecond."""
    result = estimate_closed_form(training, workspace_bytes=surroundings.device.workspace_bytes)
    device = DeviceEstimate(
        items=result.items,
        part=result.part.value,
        detail="",
        peak_allocated_bytes=result.peak_allocated_bytes,
        peak_reserved_bytes=None,
        outside_bytes=outside_bytes(training, emulated=surroundings.emulated),
        margin=error_margins.margin(training) + error_margins.FRAGMENTATION_MARGIN,
        ceiling_bytes=surroundings.ceiling_bytes,
    )
    return _estimate(
        training, surroundings, device, weigh(training).parameters, method="closed form"
    )


def runs_under(training: Training, device: Device, limit_bytes: int) -> bool:
    """Whether a job runs steadily under a limit of the allocator, without a margin.

    Raises:
        WorkloadError: the model has to be traced, and cannot be.
    """
    replays = Replays.of(training, device, outside_bytes=outside_bytes(training))
    return all(replays.of_rank(rank, limit_bytes=limit_bytes).fits for rank in replays.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """One job on one device, replayed for some rank and under some limit of the allocator."""

    training: Training
    program: Program
    workspace_bytes: int
    card_bytes: int
    """The card's memory for the allocator."""

    @classmethod
    def of(
        cls,
        training: Training,
        device: Device,
        *,
        outside_bytes: int,
        program: Program | None = None,
    ) -> Self:
        """Return the replays of a job, of its family's program unless one is given."""
        return cls(
            training=training,
            program=program or program_of(training),
            workspace_bytes=device.workspace_bytes,
            card_bytes=device.memory_bytes - outside_bytes,
        )

    @property
    def candidates(self) -> tuple[int, ...]:
        """The ranks of which one needs the most."""
        return peak_ranks(self.training, self.program.parameters)

    def of_rank(self, rank: int, *, limit_bytes: int | None = None) -> Replayed:
        """Return a rank's replay, under a limit of the allocator if one is given."""
        return replay(
            self.training,
            self.program,
            workspace_bytes=self.workspace_bytes,
            limit_bytes=limit_bytes,
            card_bytes=self.card_bytes,
            rank=rank,
        )

    def of_peak_rank(self) -> Replayed:
        """Return the rank with the largest peak, or of equal peaks with the larger reservation."""
        return max(
            map(self.of_rank, self.candidates),
            key=lambda found: (found.peak_allocated_bytes, found.peak_reserved_bytes),
        )

    def smallest_limit(self, unlimited: Replayed) -> int:
        """Return the smallest limit under which a rank runs."""
        return smallest_limit(
            self.training,
            self.program,
            workspace_bytes=self.workspace_bytes,
            unlimited=unlimited,
            card_bytes=self.card_bytes,
        )

    def judge(self, unlimited: Replayed, *, limit_bytes: int, margin: float) -> UnderCeiling:
        """Judge with the margin kept free, and with a smaller one only if it does not run."""
        kept = round(limit_bytes / (1 + margin))
        if kept >= max(unlimited.peak_reserved_bytes, unlimited.init_reserved_bytes):
            return UnderCeiling(fits=True, runs=True, runs_bare=True)
        result = self._under(kept, unlimited)
        if result is not None and result.ran_out is None:
            return UnderCeiling(fits=result.fits, runs=True, runs_bare=True)
        running = round(limit_bytes / (1 + error_margins.running_margin(self.training)))
        for runs, limit in ((True, running), (False, limit_bytes)):
            result = self._under(limit, unlimited) or result
            if result is not None and result.ran_out is None:
                return UnderCeiling(fits=False, runs=runs, runs_bare=True)
        ran_out = None if result is None else result.ran_out
        return UnderCeiling(fits=False, runs=False, runs_bare=False, ran_out=ran_out)

    def _under(self, limit_bytes: int, unlimited: Replayed) -> Replayed | None:
        """Replay under a limit; None where the peak alone is more than that."""
        if limit_bytes < unlimited.peak_allocated_bytes:
            return None
        return self.of_rank(unlimited.rank, limit_bytes=limit_bytes)


def outside_bytes(training: Training, *, emulated: bool = False) -> int:
    """Return what a rank holds outside the allocator."""
    communicates = training.world_size > 1 and not emulated
    return CONTEXT_BYTES + (NCCL_BYTES if communicates else 0)


def _estimate(
    training: Training,
    surroundings: Surroundings,
    device: DeviceEstimate,
    parameters: tuple[Parameter, ...],
    *,
    method: str,
) -> MemoryEstimate:
    memory = host_memory(training, parameters, emulated=surroundings.emulated)
    unmeasured = error_margins.unmeasured(training)
    return MemoryEstimate(
        device=device,
        host=HostEstimate(
            items=memory.items,
            local_ranks=min(surroundings.local_ranks, training.world_size),
            nvme_bytes=memory.nvme_bytes,
            margin=HOST_UNMEASURED_MARGIN if unmeasured else HOST_MARGIN,
            ceiling_bytes=surroundings.host_bytes,
        ),
        method=method,
        unmeasured=unmeasured,
    )
