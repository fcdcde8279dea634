"""Runs a program through an engine: two optimizer steps, whose second is like all later ones.

Two are needed: stage 3 prefetches only from its second pass on, and the optimizer's moments join
at the end of the first step.
"""

from dataclasses import dataclass

from autotune.predict.memory.allocator import Block, CachingAllocator, Peak
from autotune.predict.memory.engine import Engine, create_engine
from autotune.predict.memory.items import Item, Part
from autotune.predict.memory.program import (
    ALLOCATE,
    ENTER,
    FETCH,
    FREE,
    GRADIENT,
    RELEASE,
    WORKSPACE,
    Program,
)
from autotune.predict.training import Training

OPTIMIZER_STEPS = 2
MICRO_STEPS = 2
"""Replayed per optimizer step at most: the first and the last; those between are like the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What the allocator of rank 0 would report, in bytes."""

    init_allocated_bytes: int
    """After `initialize`."""
    init_reserved_bytes: int
    """The most that initialisation had reserved."""
    after_backward_bytes: int
    """Allocated after the first optimizer step's backward."""
    peak_allocated_bytes: int
    """After initialisation."""
    peak_reserved_bytes: int
    peaks: dict[Part, Peak]
    """Per part of a step, initialisation included."""

    @property
    def peak(self) -> Peak:
        """The highest point of training."""
        return max(
            (peak for part, peak in self.peaks.items() if part is not Part.INIT),
            key=lambda peak: peak.allocated_bytes,
        )


def replay(training: Training, program: Program, *, workspace_bytes: int) -> Replayed:
    """Predict the device memory of rank 0.

    Args:
        training: the job.
        program: one micro step of its model.
        workspace_bytes: one cuBLAS workspace on the device.
    """
    allocator = CachingAllocator()
    engine = create_engine(training, program.parameters, allocator)
    engine.initialize()
    init_allocated, init_reserved = allocator.allocated, allocator.peak_reserved
    allocator.reset_peaks()
    runner = _Runner(engine, program, workspace_bytes, sharded=training.zero.stage == 3)
    after_backward = 0
    micro_steps = min(training.accumulation, MICRO_STEPS)
    for step in range(OPTIMIZER_STEPS):
        for micro_step in range(micro_steps):
            engine.boundary = micro_step == micro_steps - 1
            runner.micro_step()
        if step == 0:
            after_backward = allocator.allocated
        engine.step()
    peaks = allocator.peaks()
    return Replayed(
        init_allocated_bytes=init_allocated,
        init_reserved_bytes=init_reserved,
        after_backward_bytes=after_backward,
        peak_allocated_bytes=allocator.peak_allocated,
        peak_reserved_bytes=allocator.peak_reserved,
        peaks=peaks,
    )


class _Runner:
    """Feeds a program's events to an engine; cuBLAS workspaces outlive the steps."""

    def __init__(
        self, engine: Engine, program: Program, workspace_bytes: int, *, sharded: bool
    ) -> None:
        self.engine = engine
        self.slots: list[Block] = [Block()] * program.num_slots
        self.workspaces: set[int] = set()
        self.workspace_bytes = workspace_bytes
        # Below stage 3 nothing is gathered.
        self.events = [e for e in program.events if sharded or e[0] not in (FETCH, RELEASE)]

    def micro_step(self) -> None:
        """Run forward, loss and backward once."""
        engine, slots = self.engine, self.slots
        allocator = engine.allocator
        allocate, free = allocator.allocate, allocator.free
        engine.start_pass()
        for kind, first, second, third in self.events:
            if kind == ALLOCATE:
                slots[first] = allocate(second, third)
            elif kind == FREE:
                free(slots[first])
            elif kind == FETCH:
                engine.fetch(first)
            elif kind == RELEASE:
                engine.release(first)
            elif kind == GRADIENT:
                engine.gradient(first, slots[second])
            elif kind == WORKSPACE:
                self._workspace(first)
            elif kind == ENTER:
                allocator.enter(first, second)
        engine.end_backward()

    def _workspace(self, thread: int) -> None:
        if thread not in self.workspaces:
            self.workspaces.add(thread)
            self.engine.allocator.allocate(self.workspace_bytes, Item.WORKSPACE)
