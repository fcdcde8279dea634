"""Stage 3's gathers: on demand, ahead by `prefetch_bucket_size`, released by reuse distance.

After deepspeed/runtime/zero/partitioned_param_coordinator.py. The first pass only records the
order of modules; prefetching and the reuse distance act from the second pass on.
"""

from dataclasses import dataclass, field
from typing import Protocol

from autotune.predict.memory.allocator import GATHER, MAIN, Block, CachingAllocator
from autotune.predict.program.items import Item
from autotune.predict.training_job import Training
from autotune.predict.zero_settings import ZeroSettings


class ParameterHolder(Protocol):
    """What gathers need from a rank: an engine, or only its parameters' sizes."""

    training: Training
    zero: ZeroSettings
    allocator: CachingAllocator
    element_bytes: int
    elements: list[int]

    def transient(self, num_bytes: int, item: Item, stream: int = MAIN) -> None:
        """Allocate and free at once."""


@dataclass(slots=True)
class Flight:
    """Several parameters gathered into one flat buffer, waiting to be used."""

    buffer: Block
    members: list[int]
    left: set[int] = field(default_factory=set)
    split: bool = False
    """Whether each parameter has its own copy, made at the first wait."""


class Gathers:
    """Which parameters are whole on this rank, and when they are released."""

    def __init__(self, engine: ParameterHolder, *, partitions: int, persistent: set[int]) -> None:
        self.engine = engine
        self.zero = engine.zero
        self.allocator = engine.allocator
        self.partitions = partitions
        self.persistent = persistent
        self.stream = GATHER if self.zero.overlap_comm else MAIN
        self.trace: list[int] = []
        self.modules: list[tuple[int, ...]] = []
        self.complete = self.started = False
        self.whole: dict[int, Block] = {}
        self.in_flight: dict[int, Flight] = {}
        self.secondary: dict[int, Block] = {}
        self.last_use: dict[int, int] = {}
        self.position = self.step = self.available = 0
        self.steps_of_trace: list[int] = []
        self.off = partitions == 1

    def start_pass(self) -> None:
        """`reset_step`: the recorded order is the plan from now on."""
        if self.started:
            self.complete = True
        self.started = True
        self.land_all()
        self.position = self.step = self.available = 0
        self.last_use = {}

    def fetch(self, parameters: tuple[int, ...]) -> None:
        """Gather what a module needs, wait for it, then prefetch for later modules.

        A module without parameters of its own, such as the whole model, prefetches too.
        """
        if self.off:
            return
        if not self.complete:
            self.trace.extend(parameters)
            self.steps_of_trace.extend([self.step] * len(parameters))
            self.modules.append(parameters)
        for parameter in parameters:
            if parameter not in self.whole:
                self._gather(parameters)
                break
        for parameter in parameters:
            if parameter in self.in_flight:
                self._land(parameter)
        if self.complete:
            self._pass_by(parameters)
            self._prefetch()
        self.step += 1

    def release(self, parameters: tuple[int, ...]) -> None:
        """Drop a module's parameters unless they are needed again soon."""
        if self.off:
            return
        candidates = [k for k in parameters if k in self.whole]
        if self.complete:
            candidates = [
                k
                for k in candidates
                if k not in self.persistent and self.last_use.get(k, -1) <= self.step
            ]
            if candidates:
                soon = self._reused_soon(set(candidates))
                candidates = [k for k in candidates if k not in soon]
        for parameter in candidates:
            self._make_secondary(parameter)
            self._drop(parameter)

    def release_all(self) -> None:
        """The optimizer step starts with every parameter partitioned."""
        self.land_all()
        for parameter in list(self.whole):
            self._drop(parameter)

    def forget_secondary(self) -> None:
        """`invalidate_secondary_tensor`: the step has changed the weights."""
        for block in self.secondary.values():
            self.allocator.free(block)
        self.secondary = {}

    def land_all(self) -> None:
        """Wait for every gather in flight."""
        for parameter in list(self.in_flight):
            self._land(parameter)

    def _gather(self, parameters: tuple[int, ...] | list[int]) -> None:
        wanted = [k for k in parameters if k not in self.whole and k not in self.in_flight]
        if not wanted:
            return
        elements = self.engine.elements
        self.available += sum(elements[k] for k in wanted)
        if len(wanted) == 1 or self.zero.allgather_sequential:
            for parameter in wanted:
                self._quantized_transit(elements[parameter])
                self.whole[parameter] = self._allocate_whole(parameter)
            return
        padded = sum(-(-elements[k] // self.partitions) * self.partitions for k in wanted)
        self._quantized_transit(padded)
        size = self.engine.element_bytes * padded
        buffer = self.allocator.allocate(size, Item.GATHER_BUFFER, self.stream)
        flight = Flight(buffer=buffer, members=wanted, left=set(wanted))
        for parameter in wanted:
            self.in_flight[parameter] = flight

    def _quantized_transit(self, elements: int) -> None:
        if self.zero.quantized_weights:
            self.engine.transient(elements, Item.GATHER_BUFFER, self.stream)

    def _allocate_whole(self, parameter: int) -> Block:
        held = parameter in self.persistent
        item = Item.PERSISTENT_WEIGHTS if held else Item.GATHERED_WEIGHTS
        size = self.engine.element_bytes * self.engine.elements[parameter]
        return self.allocator.allocate(size, item, self.stream)

    def _land(self, parameter: int) -> None:
        """`AllGatherCoalescedHandle.wait`: the flat buffer is copied out, then dropped."""
        flight = self.in_flight.pop(parameter, None)
        if flight is None:
            return
        if not flight.split:
            flight.split = True
            for member in flight.members:
                self.whole[member] = self._allocate_whole(member)
        flight.left.discard(parameter)
        if not flight.left:
            self.allocator.free(flight.buffer)

    def _pass_by(self, parameters: tuple[int, ...]) -> None:
        """Remove this module's uses from the queue, unless a prefetch has removed them."""
        fresh = {k for k in parameters if self.last_use.get(k, -1) < self.step}
        if not fresh:
            return
        taken: set[int] = set()
        while len(taken) < len(fresh) and self.position < len(self.trace):
            parameter = self.trace[self.position]
            self.last_use[parameter] = self.steps_of_trace[self.position]
            taken.add(parameter)
            self.position += 1

    def _prefetch(self) -> None:
        zero = self.zero
        if zero.prefetch_bucket_size <= 0 or self.position == len(self.trace):
            return
        room = min(zero.max_live_parameters - self.available, zero.prefetch_bucket_size)
        number, wanted = 0, []
        while self.position < len(self.trace) and number < room:
            parameter = self.trace[self.position]
            use = self.steps_of_trace[self.position]
            self.last_use[parameter] = max(self.last_use.get(parameter, -1), use)
            self.position += 1
            absent = parameter not in self.whole and parameter not in self.in_flight
            if absent and parameter not in wanted:
                wanted.append(parameter)
                number += self.engine.elements[parameter]
        if wanted:
            self._gather(wanted)

    def _reused_soon(self, candidates: set[int]) -> set[int]:
        """Return candidates that are used again within `max_reuse_distance` elements."""
        found: set[int] = set()
        passed, elements, limit = 0, self.engine.elements, self.zero.max_reuse_distance
        for module in self.modules[self.step :]:
            if passed >= limit:
                break
            for parameter in module:
                if parameter in candidates:
                    found.add(parameter)
                    if len(found) == len(candidates):
                        return found
                passed += elements[parameter]
        return found

    def _make_secondary(self, parameter: int) -> None:
        """ZeRO++ hpZ: after its first use a parameter leaves a copy within the node."""
        elements = secondary_elements(self.engine.training, self.engine.elements[parameter])
        if elements and parameter not in self.secondary:
            self.secondary[parameter] = self.allocator.allocate(
                self.engine.element_bytes * elements, Item.SECONDARY_WEIGHTS
            )

    def _drop(self, parameter: int) -> None:
        self.allocator.free(self.whole.pop(parameter))
        self.available -= self.engine.elements[parameter]


def secondary_elements(training: Training, elements: int) -> int:
    """Return the elements of a parameter that ZeRO++ hpZ keeps within the node; 0 without it."""
    group = min(training.zero.hpz_partition_size, training.world_size)
    return -(-elements // group) if group > 1 else 0
