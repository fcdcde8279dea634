"""Stage 0: every rank holds everything.

After deepspeed/runtime/fp16/fused_optimizer.py for 16 bit with FusedAdam (with P parameters:
weights 2P, master 4P and moments 8P already at initialisation, and 8P more in the step),
unfused_optimizer.py for other optimizers (4P in the step), and torch's own optimizer for fp32.
"""

from autotune.predict.memory.allocator import Block
from autotune.predict.memory.engine import Engine
from autotune.predict.program.items import Item, Part

ALLREDUCE_ELEMENTS = 500_000_000
"""Gradients are reduced in buckets of this size (MEMORY_OPT_ALLREDUCE_SIZE, engine.py)."""


class UnshardedEngine(Engine):
    """One rank without ZeRO."""

    def initialize(self) -> None:
        """In 16 bit: flatten the weights, copy them to fp32, and run the optimizer once."""
        allocator, size = self.allocator, self.element_bytes
        self.pending: dict[int, Block] = {}
        self.total = sum(self.elements[k] for k in self.trainable)
        built = {
            k: allocator.allocate(size * n, Item.WEIGHTS if p.trainable else Item.FROZEN_WEIGHTS)
            for k, (p, n) in enumerate(zip(self.parameters, self.elements, strict=True))
        }
        if self.training.precision == "fp32":
            return
        if not self.training.fused_adam:
            self._initialize_unfused()
            return
        clones = [
            allocator.allocate(size * self.elements[k], Item.INITIALISATION) for k in self.trainable
        ]
        allocator.allocate(size * self.total, Item.WEIGHTS)
        for block in (*clones, *(built[k] for k in self.trainable)):
            allocator.free(block)
        clone = allocator.allocate(size * self.total, Item.INITIALISATION)
        allocator.allocate(4 * self.total, Item.MASTER_WEIGHTS)
        allocator.free(clone)
        zeros = allocator.allocate(4 * self.total, Item.INITIALISATION)
        self.make_moments(self.total)
        allocator.free(zeros)

    def _initialize_unfused(self) -> None:
        """Keep the weights unchanged, each with its own fp32 copy."""
        for k in self.trainable:
            elements = self.elements[k]
            clone = self.allocator.allocate(self.element_bytes * elements, Item.INITIALISATION)
            self.allocator.allocate(4 * elements, Item.MASTER_WEIGHTS)
            self.allocator.free(clone)
            self.make_moments(elements)

    def gradient(self, parameter: int, block: Block) -> None:
        """Accumulate in place."""
        if parameter in self.pending:
            self.allocator.free(block)
        else:
            self.pending[parameter] = block

    def end_backward(self) -> None:
        """All-reduce through a flat copy, one bucket at a time."""
        self.allocator.enter(Part.REDUCTION)
        if not self.boundary or self.training.world_size == 1:
            return
        bucket = 0
        for parameter in self.pending:
            bucket += self.elements[parameter]
            if bucket > ALLREDUCE_ELEMENTS:
                self._all_reduce(bucket)
                bucket = 0
        self._all_reduce(bucket)

    def _all_reduce(self, elements: int) -> None:
        flat = self.allocator.allocate(self.element_bytes * elements, Item.REDUCTION_COPY)
        if self.training.communication_bytes != self.element_bytes:
            self.transient(self.training.communication_bytes * elements, Item.REDUCTION_COPY)
        self.allocator.free(flat)

    def step(self) -> None:
        """In 16 bit every gradient gets an fp32 copy, and with FusedAdam a flat copy of these."""
        self.enter_step()
        allocator = self.allocator
        if self.training.precision == "fp32":
            if not self.moments:
                self.make_moments(self.total)
            self.optimizer_scratch(self.total)
            self._drop_gradients()
            return
        wide = [allocator.allocate(4 * self.elements[k], Item.STEP_GRADIENTS) for k in self.pending]
        if not self.training.fused_adam:
            self.optimizer_scratch(self.total)
            for block in wide:
                allocator.free(block)
            self._drop_gradients()
            return
        flat = allocator.allocate(4 * self.total, Item.STEP_GRADIENTS)
        for block in wide:
            allocator.free(block)
        self._drop_gradients()
        self.optimizer_scratch(self.total)
        allocator.free(flat)

    def _drop_gradients(self) -> None:
        for block in self.pending.values():
            self.allocator.free(block)
        self.pending = {}
