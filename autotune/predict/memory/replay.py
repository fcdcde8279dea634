"""Runs a program through an engine: two optimizer steps, whose second is like all later ones.

Two are needed: stage 3 prefetches only from its second pass on, and the optimizer's moments join at
the end of the first step. If the limit caused retries in the second, a third shows whether the
allocator runs without retries after it has freed the cache of the initialisation.
"""

from dataclasses import dataclass

from autotune.predict.memory.allocator import (
    Block,
    CachingAllocator,
    OutOfMemoryError,
    Peak,
    RanOut,
)
from autotune.predict.memory.engine import Engine
from autotune.predict.memory.engines import create_engine
from autotune.predict.program.events import (
    ALLOCATE,
    ENTER,
    FETCH,
    FREE,
    GRADIENT,
    RELEASE,
    WORKSPACE,
    Program,
)
from autotune.predict.program.items import Item, Part
from autotune.predict.training_job import Training

OPTIMIZER_STEPS = 2
STEPS_UNDER_LIMIT = 3
"""The last one counts as steady."""
MICRO_STEPS = 2
"""Micro steps replayed per optimizer step at most: the first and the last; others equal the
last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What one rank's allocator would report, in bytes."""

    rank: int
    """The rank."""
    init_allocated_bytes: int
    """After `initialize`."""
    init_reserved_bytes: int
    """The reserved peak of the initialisation."""
    after_backward_bytes: int
    """Allocated after the first optimizer step's backward."""
    peak_allocated_bytes: int
    """After initialisation."""
    peak_reserved_bytes: int
    peaks: dict[Part, Peak]
    """Per part of a step, initialisation included."""
    ran_out: RanOut | None = None
    """Where the limit ended the run; None if it did not. The fields above then describe the run
    until there."""
    retries: tuple[int, ...] = ()
    """How often the allocator freed its cache: in initialisation, then in each step."""

    @property
    def fits(self) -> bool:
        """Whether it ran to the end, and the last step without allocator retries."""
        return self.ran_out is None and not (self.retries and self.retries[-1])

    @property
    def peak(self) -> Peak:
        """The highest point of training."""
        return max(
            (peak for part, peak in self.peaks.items() if part is not Part.INIT),
            key=lambda peak: peak.allocated_bytes,
        )


def replay(
    training: Training,
    program: Program,
    *,
    workspace_bytes: int,
    limit_bytes: int | None = None,
    card_bytes: int | None = None,
    rank: int = 0,
) -> Replayed:
    """Predict the device memory of one rank.

    Args:
        training: the job.
        program: one micro step of its model.
        workspace_bytes: one cuBLAS workspace on the device.
        limit_bytes: the most that the allocator may reserve, as the memory fraction sets it.
        card_bytes: the most that the driver could give it, by which DeepSpeed decides where to
            flatten weights.
        rank: the rank to predict; see `peak_rank.py`.
    """
    allocator = CachingAllocator(limit_bytes, card_bytes)
    engine = create_engine(training, program.parameters, allocator, rank=rank)
    run = _Run(training, program, engine, workspace_bytes)
    ran_out = None
    try:
        run.initialize()
        for _ in range(OPTIMIZER_STEPS):
            run.step()
        # A second step without retries represents all later ones.
        for _ in range(STEPS_UNDER_LIMIT - OPTIMIZER_STEPS if run.retries[-1] else 0):
            run.step()
    except OutOfMemoryError as error:
        ran_out = error.ran_out
    peaks = allocator.peaks()
    return Replayed(
        rank=rank,
        init_allocated_bytes=run.init_allocated,
        init_reserved_bytes=run.init_reserved,
        after_backward_bytes=run.after_backward,
        peak_allocated_bytes=allocator.peak_allocated,
        peak_reserved_bytes=allocator.peak_reserved,
        peaks=peaks,
        ran_out=ran_out,
        retries=tuple(run.retries),
    )


class _Run:
    """A replay of a job: `initialize`, then optimizer steps."""

    def __init__(
        self, training: Training, program: Program, engine: Engine, workspace_bytes: int
    ) -> None:
        self.allocator = engine.allocator
        self.engine = engine
        self.runner = _Runner(engine, program, workspace_bytes, sharded=training.zero.stage == 3)
        self.micro_steps = min(training.accumulation, MICRO_STEPS)
        self.init_allocated = self.init_reserved = self.after_backward = 0
        self.retries: list[int] = []

    def initialize(self) -> None:
        """Run `initialize`, and separate its peaks from those of training."""
        self.engine.initialize()
        self.init_allocated = self.allocator.allocated
        self.init_reserved = self.allocator.peak_reserved
        self.allocator.reset_peaks()
        self._count_retries()

    def step(self) -> None:
        """Run one optimizer step."""
        for micro_step in range(self.micro_steps):
            self.engine.boundary = micro_step == self.micro_steps - 1
            self.runner.micro_step()
        self.after_backward = self.after_backward or self.allocator.allocated
        self.engine.step()
        self._count_retries()

    def _count_retries(self) -> None:
        self.retries.append(self.allocator.num_retries - sum(self.retries))


class _Runner:
    """Feeds a program's events to an engine; cuBLAS workspaces are kept after the steps."""

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
