"""Which parameters stage 3 gathers at which module, recorded from the memory model's coordinator.

The plan is that of the steady state, from the second pass on, when DeepSpeed prefetches. It
depends on the model and on stage 3's keys, not on the micro batch.
"""

from dataclasses import dataclass
from functools import lru_cache

from autotune.predict.memory.allocator import MAIN, Block, CachingAllocator
from autotune.predict.memory.gathers import Gathers
from autotune.predict.program.cache_keys import Remembered, by_layout
from autotune.predict.program.items import Item
from autotune.predict.throughput.module_visits import Visits
from autotune.predict.training_job import Training
from autotune.predict.zero_settings import ZeroSettings


@dataclass(frozen=True, slots=True)
class Gather:
    """One all-gather."""

    num_tensors: int
    num_elements: int
    coalesced: bool
    """Whether it has several parameters, which are split from one buffer afterwards."""
    again: bool
    """Whether the same micro step gathered the parameters before: hpZ then stays in its group."""


@dataclass(slots=True)
class Fetch:
    """The gathers at one module's start."""

    demanded: list[int]
    """Gathers that start because this module needs them now."""
    awaited: list[int]
    """Gathers that must have ended before the module runs."""
    prefetched: list[int]
    """Gathers that start for later modules."""


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """One micro step of stage 3, module by module; gathers are numbered in order of their start."""

    gathers: tuple[Gather, ...]
    fetches: tuple[Fetch, ...]


def plan_gathers(training: Training, visits: Visits) -> GatherPlan:
    """Return the gathers of a micro step; equal plans are computed once."""
    zero = training.zero
    keys = (
        training.activation_checkpointing,
        zero.prefetch_bucket_size,
        zero.param_persistence_threshold,
        zero.model_persistence_threshold,
        zero.max_live_parameters,
        zero.max_reuse_distance,
        zero.allgather_sequential,
    )
    layout = by_layout(training)
    return _plan_gathers(_Planned(Remembered(f"{layout.identity}{keys}", training), visits))


@dataclass(frozen=True, slots=True)
class _Planned:
    """Keyed by the job alone, since the visits follow from it."""

    key: Remembered
    visits: Visits

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Planned) and self.key == other.key


@lru_cache(maxsize=256)
def _plan_gathers(planned: _Planned) -> GatherPlan:
    training, visits = planned.key.training, planned.visits
    coordinator = _Coordinator(training, visits)
    for _ in range(2):
        coordinator.begin()
        for visit in visits.visits:
            coordinator.visit(visit.fetched)
            for released in visit.released:
                coordinator.release(released)
        coordinator.release_all()
    return GatherPlan(gathers=tuple(coordinator.gathers), fetches=tuple(coordinator.fetches))


_BLOCK = Block()


class _Weightless(CachingAllocator):
    """An allocator that counts nothing."""

    def allocate(self, num_bytes: int, item: int, stream: int = MAIN) -> Block:
        del num_bytes, item, stream
        return _BLOCK

    def free(self, block: Block) -> None:
        del block


class _Elements:
    """A holder with the parameters' sizes only."""

    def __init__(self, training: Training, visits: Visits) -> None:
        self.training = training
        self.zero: ZeroSettings = training.zero
        self.element_bytes = training.element_bytes
        self.elements = [p.num_elements for p in visits.parameters]
        self.allocator: CachingAllocator = _Weightless()

    def transient(self, num_bytes: int, item: Item, stream: int = MAIN) -> None:
        """Do nothing."""


class _Coordinator(Gathers):
    """Records what it gathers."""

    def __init__(self, training: Training, visits: Visits) -> None:
        engine = _Elements(training, visits)
        super().__init__(
            engine,
            partitions=training.world_size,
            persistent=_persistent(training.zero, engine.elements),
        )
        self.gathers: list[Gather] = []
        self.fetches: list[Fetch] = []
        self.number_of: dict[int, int] = {}
        self.seen: set[int] = set()

    def begin(self) -> None:
        """Start a new pass."""
        self.start_pass()
        self.gathers, self.fetches, self.number_of, self.seen = [], [], {}, set()

    def visit(self, parameters: tuple[int, ...]) -> None:
        """Fetch for a module; separates what it needs from what is prefetched."""
        first = len(self.gathers)
        self.fetch(parameters)
        own = {self.number_of[k] for k in parameters if k in self.number_of}
        demanded = sorted(n for n in own if n >= first)
        self.fetches.append(
            Fetch(
                demanded=demanded,
                awaited=sorted(own),
                prefetched=[n for n in range(first, len(self.gathers)) if n not in own],
            )
        )
        for parameter in parameters:
            self.number_of.pop(parameter, None)

    def _gather(self, parameters: tuple[int, ...] | list[int]) -> None:
        wanted = [k for k in parameters if k not in self.whole and k not in self.in_flight]
        super()._gather(parameters)
        if not wanted:
            return
        for parameter in wanted:
            self.number_of[parameter] = len(self.gathers)
        self.gathers.append(
            Gather(
                num_tensors=len(wanted),
                num_elements=sum(self.engine.elements[k] for k in wanted),
                coalesced=len(wanted) > 1 and not self.zero.allgather_sequential,
                again=self.seen.issuperset(wanted),
            )
        )
        self.seen.update(wanted)


def _persistent(zero: ZeroSettings, elements: list[int]) -> set[int]:
    """Small parameters stay gathered, until their total passes a threshold."""
    found: set[int] = set()
    total = 0
    for index, number in enumerate(elements):
        if number <= zero.param_persistence_threshold and (
            number + total <= zero.model_persistence_threshold
        ):
            found.add(index)
            total += number
    return found
