"""ZeRO stage 3: this rank's shard of everything, and whole parameters only while they are used.

After deepspeed/runtime/zero/stage3.py. In 16 bit with P parameters and N ranks: weights 2P/N,
gradients 2P/N, master weights 4P/N, moments 8P/N; every parameter is padded separately to a
multiple of N; the reduce bucket is permanent. Offloaded parts leave.
"""

from autotune.predict.memory.allocator import MAIN, REDUCE, Block
from autotune.predict.memory.engine import FP64, Engine
from autotune.predict.memory.gathers import Gathers, secondary_elements
from autotune.predict.memory.sub_groups import SubGroup, sub_groups
from autotune.predict.program.items import Item, Part

DEVICES_PER_NODE = 8
"""ZeRO++'s ranks of a node: `device_count()`, which is not in a config."""
NORM_PIECE_ELEMENTS = 250_000_000
"""With offload, norms are taken in pieces of this size (`_constant_buffered_norm2`)."""


class ShardedEngine(Engine):
    """One rank under ZeRO 3."""

    def initialize(self) -> None:
        """`zero.Init` shards each parameter as it is built; then the states are made."""
        training, zero = self.training, self.zero
        self.offload = zero.offload_optimizer.enabled
        self.reduce_stream = REDUCE if zero.overlap_comm else MAIN
        self.shards = [-(-n // self.partitions(k)) for k, n in enumerate(self.elements)]
        self.sub_groups = sub_groups(training, self.shards, self.trainable)
        self.in_bucket: list[int] = []
        self.in_bucket_elements = 0
        self.oversized: list[Block] = []
        self.stepped: set[int] = set()
        self._build_weights()
        self._make_states()
        self.gathers = Gathers(self, partitions=training.world_size, persistent=self._persistent())
        self.gathers.secondary = self._secondary
        if training.world_size > 1:
            # Hooks are set on whole parameters, one at a time.
            for k in self.trainable:
                self.transient(self.element_bytes * self.elements[k], Item.INITIALISATION)

    def partitions(self, parameter: int) -> int:
        """Return the ranks over which a parameter is sharded."""
        training = self.training
        if not self.parameters[parameter].expert:
            return training.world_size
        return max(training.world_size // training.expert_parallel_size, 1)

    def _build_weights(self) -> None:
        allocator, element_bytes = self.allocator, self.element_bytes
        stay = not self.zero.offload_param.enabled
        shards: list[Block] = []
        self._secondary: dict[int, Block] = {}
        for index, (parameter, n, shard) in enumerate(
            zip(self.parameters, self.elements, self.shards, strict=True)
        ):
            whole = allocator.allocate(element_bytes * n, Item.INITIALISATION)
            if secondary := secondary_elements(self.training, n):
                self._secondary[index] = allocator.allocate(
                    element_bytes * secondary, Item.SECONDARY_WEIGHTS
                )
            if stay:
                item = Item.WEIGHTS if parameter.trainable else Item.FROZEN_WEIGHTS
                small = self.zero.quantized_nontrainable_weights and not parameter.trainable
                size = shard if small else element_bytes * shard
                block = allocator.allocate(size, item)
                if parameter.trainable:
                    shards.append(block)
            allocator.free(whole)
        if stay:
            # Defragmented through the host into one buffer.
            for block in shards:
                allocator.free(block)
            allocator.empty_cache()
            total = sum(self.shards[k] for k in self.trainable)
            allocator.allocate(element_bytes * total, Item.WEIGHTS)

    def _make_states(self) -> None:
        allocator, training = self.allocator, self.training
        master = training.master_bytes
        for group in self.sub_groups:
            if group.on_device:
                # In fp32 too: DeepSpeed compares a device with its name, finds them unequal, and
                # copies weights that could serve as master weights.
                converted = allocator.allocate(master * group.elements, Item.INITIALISATION)
                allocator.allocate(master * group.elements, Item.MASTER_WEIGHTS)
                allocator.free(converted)
            if group.on_device and self.offload:
                # Twin-flow: the part that stays keeps its fp32 gradient too.
                allocator.allocate(master * group.elements, Item.GRADIENT_PARTITION)
        if not self.offload:
            largest = max((g.elements for g in self.sub_groups), default=0)
            self.transient(master * largest, Item.INITIALISATION)
        if self.zero.contiguous_gradients:
            allocator.allocate(
                training.communication_bytes * self.zero.reduce_bucket_size, Item.REDUCE_BUCKET
            )
        if not self.offload:
            total = sum(self.shards[k] for k in self.trainable)
            allocator.allocate(training.accumulation_bytes * total, Item.GRADIENT_PARTITION)

    def _persistent(self) -> set[int]:
        """`mark_persistent_parameters`: small ones, until the total passes its threshold."""
        found: set[int] = set()
        total = 0
        for k, n in enumerate(self.elements):
            if n + total > self.zero.model_persistence_threshold:
                continue
            if n <= self.zero.param_persistence_threshold:
                found.add(k)
                total += n
        return found

    # ------------------------------------------------------------------ parameters
    def start_pass(self) -> None:
        """Start from the recorded order."""
        self.gathers.start_pass()

    def fetch(self, parameters: tuple[int, ...]) -> None:
        """Gather what a module needs."""
        self.gathers.fetch(parameters)

    def release(self, parameters: tuple[int, ...]) -> None:
        """Release the parameters of a module."""
        self.gathers.release(parameters)

    # ------------------------------------------------------------------ gradients
    def gradient(self, parameter: int, block: Block) -> None:
        """Copy a gradient into the bucket, or keep it where it is larger than the bucket."""
        number = self.elements[parameter]
        limit = self.zero.reduce_bucket_size
        if self.in_bucket_elements + number > limit and self.in_bucket_elements > 0:
            self._reduce_bucket()
        if self.zero.contiguous_gradients and self.in_bucket_elements + number <= limit:
            self.allocator.free(block)
        else:
            self.oversized.append(block)
        self.in_bucket.append(parameter)
        self.in_bucket_elements += number

    def _reduce_bucket(self) -> None:
        if not self.in_bucket:
            return
        training, allocator = self.training, self.allocator
        number, stream = self.in_bucket_elements, self.reduce_stream
        copies: list[Block] = []
        if training.communication_bytes != self.element_bytes and self.oversized:
            # The bucket has the communication type; gradients outside it are cast now.
            size = training.communication_bytes * number
            copies.append(allocator.allocate(size, Item.REDUCTION_COPY, stream))
        single = len(self.in_bucket) == 1 and not number % self.partitions(self.in_bucket[0])
        if self.zero.quantized_gradients and training.world_size > DEVICES_PER_NODE:
            copies += self._quantized_reduction(stream)
        elif self.zero.reduce_scatter and not single:
            size = training.communication_bytes * number
            copies.append(allocator.allocate(size, Item.REDUCTION_COPY, stream))
        if training.accumulation_bytes != training.communication_bytes:
            shard = sum(self.shards[k] for k in self.in_bucket)
            size = training.accumulation_bytes * shard
            copies.append(allocator.allocate(size, Item.REDUCTION_COPY, stream))
        if self.offload:
            self._offload_shards(stream)
        for block in (*copies, *self.oversized):
            allocator.free(block)
        self.oversized, self.in_bucket, self.in_bucket_elements = [], [], 0

    def _quantized_reduction(self, stream: int) -> list[Block]:
        """ZeRO++ qgZ (`all_to_all_quant_reduce`): tensor by tensor, and no copy of the bucket.

        A tensor is quantised to int4, sent within the node, reduced, sent between nodes, and
        widened again; its shard stays. The scales are small.
        """
        allocator, training = self.allocator, self.training
        shards = []
        for k in self.in_bucket:
            number, shard = self.elements[k], self.shards[k]
            if number % (2 * training.world_size):
                shards.append(
                    allocator.allocate(
                        training.communication_bytes * number, Item.REDUCTION_COPY, stream
                    )
                )
                continue
            sizes = [number // 2, number // 2, *(number // 2 // DEVICES_PER_NODE,) * 2]
            sizes += [2 * number // DEVICES_PER_NODE, 2 * shard]
            blocks = [allocator.allocate(s, Item.REDUCTION_COPY, stream) for s in sizes]
            shards.append(allocator.allocate(2 * shard, Item.REDUCTION_COPY, stream))
            for block in blocks:
                allocator.free(block)
        return shards

    def _offload_shards(self, stream: int) -> None:
        """Copy each shard to the device again, take its norm, and widen it.

        One after the other: the largest of the bucket is counted.
        """
        allocator, training = self.allocator, self.training
        shard = max(self.shards[k] for k in self.in_bucket)
        size = training.accumulation_bytes * shard
        on_device = allocator.allocate(size, Item.REDUCTION_COPY, stream)
        if self.boundary:
            norm = FP64 * min(shard, NORM_PIECE_ELEMENTS)
            self.transient(norm, Item.NORM_SCRATCH, stream)
            if training.master_bytes != training.accumulation_bytes:
                self.transient(training.master_bytes * shard, Item.STEP_GRADIENTS, stream)
        allocator.free(on_device)

    def end_backward(self) -> None:
        """Reduce the last bucket; sums live in the permanent partition."""
        self.allocator.enter(Part.REDUCTION)
        self._reduce_bucket()

    # ------------------------------------------------------------------ step
    def step(self) -> None:
        """Step one sub-group at a time; with offload on the host."""
        self.enter_step()
        self.gathers.release_all()
        if self.offload:
            for index, group in enumerate(self.sub_groups):
                if group.on_device:
                    self._update(index, group)
        else:
            self._step_on_device()
        self.gathers.forget_secondary()

    def _step_on_device(self) -> None:
        allocator, training = self.allocator, self.training
        if training.precision == "fp16":
            self._check_overflow()
        self.transient(FP64 * max(self.shards[k] for k in self.trainable), Item.NORM_SCRATCH)
        for index, group in enumerate(self.sub_groups):
            flat = allocator.allocate(
                training.accumulation_bytes * group.elements, Item.STEP_GRADIENTS
            )
            wide = flat
            if training.master_bytes != training.accumulation_bytes:
                wide = allocator.allocate(
                    training.master_bytes * group.elements, Item.STEP_GRADIENTS
                )
                allocator.free(flat)
            self._update(index, group)
            allocator.free(wide)

    def _update(self, index: int, group: SubGroup) -> None:
        if index not in self.stepped:
            self.stepped.add(index)
            self.make_moments(group.elements)
        self.optimizer_scratch(group.elements)

    def _check_overflow(self) -> None:
        """fp16 looks for infinities in the whole partition: `|x|` and a mask."""
        total = sum(self.shards[k] for k in self.trainable)
        size = self.training.accumulation_bytes * total
        absolute = self.allocator.allocate(size, Item.NORM_SCRATCH, self.reduce_stream)
        self.transient(total, Item.NORM_SCRATCH, self.reduce_stream)
        self.allocator.free(absolute)
