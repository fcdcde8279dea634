"""bf16 weights with fp32 gradient sums at stage 1: DeepSpeed's BF16_Optimizer.

After deepspeed/runtime/bf16_optimizer.py. With P parameters and N ranks: weights 2P, gradients
2P, a whole fp32 sum 4P (not sharded), master weights 4P/N, moments 8P/N from the first step on.
"""

from autotune.predict.memory.allocator import Block
from autotune.predict.memory.engine import Engine
from autotune.predict.program.items import Item, Part

_ALIGNMENT = 2


class Bf16AccumulationEngine(Engine):
    """One rank under ZeRO 1 with `data_types.grad_accum_dtype` fp32."""

    def initialize(self) -> None:
        """Flatten the weights, make this rank's fp32 copy and the whole fp32 sum."""
        allocator, training = self.allocator, self.training
        step = _ALIGNMENT * training.world_size
        total = sum(self.elements[k] for k in self.trainable)
        self.flat_elements = -(-total // step) * step
        self.partition_elements = self.flat_elements // training.world_size
        built = {
            k: allocator.allocate(
                self.element_bytes * n, Item.WEIGHTS if p.trainable else Item.FROZEN_WEIGHTS
            )
            for k, (p, n) in enumerate(zip(self.parameters, self.elements, strict=True))
        }
        allocator.allocate(self.element_bytes * self.flat_elements, Item.WEIGHTS)
        for k in self.trainable:
            allocator.free(built[k])
        clone = allocator.allocate(
            self.element_bytes * self.partition_elements, Item.INITIALISATION
        )
        allocator.allocate(4 * self.partition_elements, Item.MASTER_WEIGHTS)
        allocator.free(clone)
        allocator.allocate(
            training.accumulation_bytes * self.flat_elements, Item.GRADIENT_PARTITION
        )
        self.pending: dict[int, Block] = {}

    def gradient(self, parameter: int, block: Block) -> None:
        """Keep it: all gradients are added to the sum after backward."""
        known = self.pending.get(parameter)
        if known is None:
            self.pending[parameter] = block
        else:
            self.allocator.free(block)

    def end_backward(self) -> None:
        """Add each gradient to its sum through an fp32 copy; reduce at the boundary in bf16."""
        allocator, training = self.allocator, self.training
        allocator.enter(Part.REDUCTION)
        for parameter in self.pending:
            size = training.accumulation_bytes * self.elements[parameter]
            self.transient(size, Item.REDUCTION_COPY)
        if self.boundary and training.communication_bytes != training.accumulation_bytes:
            self.transient(training.communication_bytes * self.flat_elements, Item.REDUCTION_COPY)

    def step(self) -> None:
        """Norm and update in place; the bf16 gradients are freed afterwards."""
        self.enter_step()
        if not self.moments:
            self.make_moments(self.partition_elements)
        self.optimizer_scratch(self.partition_elements)
        for block in self.pending.values():
            self.allocator.free(block)
        self.pending = {}
