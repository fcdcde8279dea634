"""ZeRO stages 1 and 2: whole weights in one flat buffer, a partition of everything else.

After deepspeed/runtime/zero/stage_1_and_2.py. With P parameters and N ranks, in 16 bit:
weights 2P, master weights 4P/N, moments 8P/N from the first step on. Stage 2 moves each gradient
into the bucket as it comes; stage 1 keeps all of them, 2P, until backward ends.
"""

from autotune.predict.memory.allocator import MAIN, REDUCE, Block
from autotune.predict.memory.engine import FP64, Engine
from autotune.predict.memory.flat_groups import make_groups
from autotune.predict.program.items import Item, Part


class FlatEngine(Engine):
    """One rank under ZeRO 1 or 2."""

    def initialize(self) -> None:
        """Flatten the weights, clone this rank's partition, and make its fp32 copy."""
        allocator, element_bytes = self.allocator, self.element_bytes
        self.offload = self.zero.offload_optimizer.enabled
        self.contiguous = self.zero.contiguous_gradients or self.offload
        self.wide_sums = self.training.accumulation_bytes > element_bytes
        self.bucket_bytes = (
            self.training.accumulation_bytes if self._sums_locally else element_bytes
        )
        self.reduce_stream = REDUCE if self.zero.overlap_comm else MAIN
        self.groups = make_groups(self.training, self.parameters, self.elements, rank=self.rank)
        self.group_of = {k: g for g in self.groups for k in g.members}
        self.own = {k for g in self.groups for k in g.own}
        built = {
            k: allocator.allocate(
                element_bytes * n, Item.WEIGHTS if p.trainable else Item.FROZEN_WEIGHTS
            )
            for k, (p, n) in enumerate(zip(self.parameters, self.elements, strict=True))
        }
        for group in self.groups:
            allocator.empty_cache()
            self._flatten([built[k] for k in group.members], element_bytes * group.flat_elements)
            self._make_master(group.partition_elements)
        if self.offload:
            largest = max(self.elements[k] for k in self.trainable)
            allocator.allocate(element_bytes * largest, Item.OFFLOAD_BUFFER)
        else:
            for group in self.groups:
                self.transient(
                    self.training.master_bytes * group.partition_elements, Item.INITIALISATION
                )
        self.buckets: list[Block] = []
        self.pending: dict[int, Block] = {}
        self.in_bucket: list[int] = []
        self.in_bucket_elements = 0
        self.unreduced: list[Block] = []
        self.partition: Block | None = None
        self.accumulated: Block | None = None
        self.wide_partitions: list[Block] = []

    def _flatten(self, tensors: list[Block], flat_bytes: int) -> None:
        """Copy a group into one buffer; on the host where the card has no room for both.

        What counts is what the driver has left, not the limit of the allocator
        (`available_memory` in stage_1_and_2.py: __init__).
        """
        on_card = self.allocator.driver_has(flat_bytes)
        if not on_card:
            for block in tensors:
                self.allocator.free(block)
            self.allocator.empty_cache()
        self.allocator.allocate(flat_bytes, Item.WEIGHTS)
        if on_card:
            for block in tensors:
                self.allocator.free(block)

    @property
    def _sums_locally(self) -> bool:
        """Stage 1 sums in the wider type before reducing (`use_grad_accum_attribute`)."""
        return self.wide_sums and self.zero.stage == 1

    def _make_master(self, elements: int) -> None:
        allocator, training = self.allocator, self.training
        clone = allocator.allocate(self.element_bytes * elements, Item.INITIALISATION)
        if self.offload:
            allocator.free(clone)
        elif self.element_bytes == training.master_bytes:
            allocator.free(clone)
            allocator.allocate(training.master_bytes * elements, Item.MASTER_WEIGHTS)
        else:
            allocator.allocate(training.master_bytes * elements, Item.MASTER_WEIGHTS)
            allocator.free(clone)

    # ------------------------------------------------------------------ gradients
    def gradient(self, parameter: int, block: Block) -> None:
        """Accumulate in place, and at stage 2 (or with overlap) move it into the bucket."""
        allocator = self.allocator
        if self.contiguous and not self.buckets:
            number = 2 if self.zero.overlap_comm else 1
            size = self.bucket_bytes * self.zero.reduce_bucket_size
            self.buckets = [allocator.allocate(size, Item.REDUCE_BUCKET) for _ in range(number)]
        if self._sums_locally:
            block = self._widen(parameter, block)
        elif parameter in self.pending:
            allocator.free(block)
            block = self.pending[parameter]
        self.pending[parameter] = block
        if self.zero.stage == 2 or (self.zero.overlap_comm and self.boundary):
            self._into_bucket(parameter)

    def _widen(self, parameter: int, block: Block) -> Block:
        """Add a gradient to its wider sum: `_fill_param_grad_accum_attribute`."""
        allocator = self.allocator
        wide = allocator.allocate(
            self.training.accumulation_bytes * self.elements[parameter], Item.GRADIENTS
        )
        allocator.free(block)
        known = self.pending.get(parameter)
        if known is None:
            return wide
        allocator.free(wide)
        return known

    def _into_bucket(self, parameter: int) -> None:
        allocator, elements = self.allocator, self.elements[parameter]
        limit = self.zero.reduce_bucket_size
        if self.in_bucket_elements + elements > limit:
            self._reduce_bucket()
        if not self.contiguous:
            self.in_bucket.append(parameter)
            self.in_bucket_elements += elements
            return
        if elements > limit:
            # Larger than the bucket: it stays in its own tensor, cloned first under offload.
            if self.offload:
                clone = allocator.allocate(self.bucket_bytes * elements, Item.GRADIENTS)
                allocator.free(self.pending[parameter])
                self.pending[parameter] = clone
        else:
            allocator.free(self.pending.pop(parameter))
        self.in_bucket.append(parameter)
        self.in_bucket_elements += elements

    def _reduce_bucket(self) -> None:
        if not self.in_bucket:
            self.in_bucket_elements = 0
            return
        self._reduction_copies()
        for parameter in self.in_bucket:
            if parameter in self.own:
                self._keep_own(parameter)
            elif self.zero.stage == 2 and not self.contiguous and self.zero.overlap_comm:
                self._clear_later(parameter)
            elif self.zero.stage == 2:
                self._drop(parameter)
        self.in_bucket = []
        self.in_bucket_elements = 0

    def _reduction_copies(self) -> None:
        """Count what `average_tensor` allocates: pieces of one bucket are flattened again."""
        copies = self.allocator.allocate
        number, stream = self.in_bucket_elements, self.reduce_stream
        if self.wide_sums:
            self._make_wide_partitions()
        blocks = []
        if not self.contiguous or (self.zero.reduce_scatter and self._num_pieces() > 1):
            blocks.append(copies(self.bucket_bytes * number, Item.REDUCTION_COPY, stream))
        if self.training.communication_bytes != self.bucket_bytes:
            size = self.training.communication_bytes * number
            blocks.append(copies(size, Item.REDUCTION_COPY, stream))
        if self.wide_sums:
            self._add_to_wide_partitions()
        for block in blocks:
            self.allocator.free(block)

    def _num_pieces(self) -> int:
        """Return the pieces of the bucket after neighbours for the same rank are merged."""
        last, number = None, 0
        for parameter in self.in_bucket:
            group = self.group_of[parameter]
            start = group.starts[parameter]
            end = start + self.elements[parameter] - 1
            for rank in range(
                start // group.partition_elements, end // group.partition_elements + 1
            ):
                owner = (id(group), rank)
                # Slices that are added to the wide partition are not merged.
                if owner != last or (self.wide_sums and rank == group.partition):
                    number += 1
                last = owner
        return number

    def _make_wide_partitions(self) -> None:
        """`_get_compact_grad_partition_buffer`: one wide buffer for the rank's own gradients."""
        if self.wide_partitions or not any(k in self.own for k in self.in_bucket):
            return
        wide = self.training.accumulation_bytes
        self.wide_partitions = [
            self.allocator.allocate(wide * g.partition_elements, Item.GRADIENT_PARTITION)
            for g in self.groups
        ]

    def _add_to_wide_partitions(self) -> None:
        """Each own slice is widened while the reduced copy is still there."""
        wide = self.training.accumulation_bytes
        for k in self.in_bucket:
            if k in self.own and self.bucket_bytes != wide:
                own = self.group_of[k].own_elements(k, self.elements[k])
                self.transient(wide * own, Item.REDUCTION_COPY, self.reduce_stream)

    def _keep_own(self, parameter: int) -> None:
        """`copy_grads_in_partition`: own gradients leave the bucket before it is refilled."""
        allocator = self.allocator
        if self.offload:
            if not self.boundary:
                # Copied to the host, but freed only after backward: one that was too large for the
                # bucket stays in its own tensor.
                return
            group = self.group_of[parameter]
            own = group.own_elements(parameter, self.elements[parameter])
            self.transient(FP64 * own, Item.NORM_SCRATCH)
            if self.training.master_bytes != self.bucket_bytes:
                self.transient(self.training.master_bytes * own, Item.STEP_GRADIENTS)
            self._drop(parameter)
        elif self.contiguous and not self.wide_sums:
            if self.partition is None:
                size = sum(self.elements[k] for k in self.own)
                self.partition = allocator.allocate(
                    self.element_bytes * size, Item.GRADIENT_PARTITION
                )
            self._drop(parameter)
        elif self.contiguous:
            self._drop(parameter)

    def _drop(self, parameter: int) -> None:
        block = self.pending.pop(parameter, None)
        if block is not None:
            self.allocator.free(block)

    def _clear_later(self, parameter: int) -> None:
        """Without a bucket, overlapped reductions free gradients at the next reduction."""
        for block in self.unreduced:
            self.allocator.free(block)
        self.unreduced = []
        later = self.pending.pop(parameter, None)
        if later is not None:
            self.unreduced.append(later)

    def end_backward(self) -> None:
        """Reduce what is left; stage 1 reduces everything here, in forward order."""
        allocator = self.allocator
        allocator.enter(Part.REDUCTION)
        if self.zero.stage == 1:
            if not self.boundary:
                return
            if not self.zero.overlap_comm:
                self._reduce_everything()
        self._reduce_bucket()
        for block in (*self.buckets, *self.unreduced):
            allocator.free(block)
        self.buckets, self.unreduced = [], []
        for parameter in list(self.pending):
            # Without a bucket, own gradients stay where autograd put them until the step.
            if self.contiguous or parameter not in self.own:
                self._drop(parameter)
        if not self.offload:
            self._keep_partition()

    def _reduce_everything(self) -> None:
        for group in self.groups:
            for parameter in group.members:
                if parameter in self.pending:
                    self._into_bucket(parameter)

    def _keep_partition(self) -> None:
        """Own gradients are added to those of earlier micro steps, or become their start."""
        if self.accumulated is None:
            self.accumulated = self.partition
        elif self.partition is not None:
            self.allocator.free(self.partition)
        self.partition = None

    # ------------------------------------------------------------------ step
    def step(self) -> None:
        """Norms in fp64, then per group the flat gradient, its fp32 copy, and the update."""
        self.enter_step()
        allocator, training = self.allocator, self.training
        if self.offload:
            for block in self.wide_partitions:
                allocator.free(block)
            self.wide_partitions = []
            return
        largest = max(
            (self.group_of[k].own_elements(k, self.elements[k]) for k in self.own), default=0
        )
        self.transient(FP64 * largest, Item.NORM_SCRATCH)
        first = not self.moments
        for index, group in enumerate(self.groups):
            number = group.partition_elements
            if self.wide_sums and self.wide_partitions:
                wide = self.wide_partitions[index]
            else:
                flat = allocator.allocate(self.element_bytes * number, Item.STEP_GRADIENTS)
                wide = flat
                if training.master_bytes != self.element_bytes:
                    wide = allocator.allocate(training.master_bytes * number, Item.STEP_GRADIENTS)
                    allocator.free(flat)
                self._free_own_gradients(last=index == len(self.groups) - 1)
            if first:
                self.make_moments(number)
            self.optimizer_scratch(number)
            allocator.free(wide)
        self.wide_partitions = []

    def _free_own_gradients(self, *, last: bool) -> None:
        """The step frees them once it has its flat copy."""
        if not last:
            return
        if self.accumulated is not None:
            self.allocator.free(self.accumulated)
            self.accumulated = None
        for parameter in list(self.pending):
            self._drop(parameter)
