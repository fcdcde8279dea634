"""Device memory by formulas: fast enough to screen thousands of proposals.

Each phase that can have the peak is the sum of the same items as the replay's; the largest counts.
Not included: fragmentation, block waste, and what a prefetch holds at one time. The error is a few
per cent; verdicts depend on the replay.
"""

from dataclasses import dataclass

from autotune.predict.memory.engine import FP64
from autotune.predict.memory.sub_groups import sub_groups
from autotune.predict.memory.summary import Summary, Weighted, lay_out, summarise, weigh
from autotune.predict.memory.unsharded import ALLREDUCE_ELEMENTS
from autotune.predict.program.items import Item, Part
from autotune.predict.training_job import Training

Items = dict[Item, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A peak by formula, in bytes."""

    part: Part
    items: dict[str, int]
    peak_allocated_bytes: int


def estimate_closed_form(training: Training, *, workspace_bytes: int) -> Estimate:
    """Predict the allocated peak of rank 0 without replaying anything."""
    terms = _Terms(training, summarise(training), weigh(training))
    phases = {
        (Part.LOSS, 0): terms.loss(),
        (Part.BACKWARD, 0): terms.head(),
        (Part.BACKWARD, 1): terms.top_layer(),
        (Part.BACKWARD, 2): terms.bottom_layer(),
        (Part.REDUCTION, 0): terms.reduction(),
        (Part.STEP, 0): terms.step(),
    }
    (part, _), items = max(phases.items(), key=lambda phase: sum(phase[1].values()))
    items = add_items({Item.WORKSPACE: 2 * workspace_bytes}, terms.states(), items)
    total = sum(items.values())
    return Estimate(
        part=part,
        items={item.name.lower(): size for item, size in items.items() if size},
        peak_allocated_bytes=total,
    )


class _Terms:
    """The terms of one job; every method returns what it adds to the permanent states."""

    def __init__(self, training: Training, summary: Summary, weighted: Weighted) -> None:
        self.training = training
        self.zero = training.zero
        self.summary = summary
        self.weighted = weighted
        self.layers = training.model.num_hidden_layers
        self.element_bytes = training.element_bytes
        layout = lay_out(training)
        self.layout = layout
        self.total, self.trained = layout.total, layout.trained
        self.partition, self.largest = layout.partition, layout.largest
        self.bucket = self.element_bytes * self.zero.reduce_bucket_size
        self.offload = self.zero.offload_optimizer.enabled

    # ------------------------------------------------------------------ permanent
    def states(self) -> Items:
        """Weights, master weights, moments, and at stage 3 gradients and bucket."""
        training, zero = self.training, self.zero
        size = self.element_bytes
        if zero.stage == 0:
            master = 0 if training.precision == "fp32" else 4 * self.trained
            moments = 4 * training.num_moments * self.trained
            return self._weights(size * self.total) | {
                Item.MASTER_WEIGHTS: master,
                Item.MOMENTS: moments,
            }
        if zero.stage == 3:
            return self._sharded_states()
        items = self._weights(size * self.total)
        if self.offload:
            items[Item.OFFLOAD_BUFFER] = size * self.largest
            return items
        items[Item.MASTER_WEIGHTS] = training.master_bytes * self.partition
        items[Item.MOMENTS] = self._moments(self.partition)
        if self._whole_sums:
            items[Item.GRADIENT_PARTITION] = 4 * self.trained
        return items

    def _sharded_states(self) -> Items:
        training, zero = self.training, self.zero
        groups = sub_groups(training, self.layout.shards, self.layout.trainable)
        on_device = sum(group.elements for group in groups if group.on_device)
        items: Items = {Item.REDUCE_BUCKET: self.bucket if zero.contiguous_gradients else 0}
        if not zero.offload_param.enabled:
            items |= self._weights(self.element_bytes * sum(self.layout.shards))
        items[Item.MASTER_WEIGHTS] = training.master_bytes * on_device
        items[Item.MOMENTS] = self._moments(on_device)
        if not self.offload:
            items[Item.GRADIENT_PARTITION] = training.accumulation_bytes * self.partition
        return items

    def _weights(self, total: int) -> Items:
        frozen = self.total - self.trained
        share = total * frozen // self.total
        return {Item.WEIGHTS: total - share, Item.FROZEN_WEIGHTS: share}

    def _moments(self, elements: int) -> int:
        return self.training.num_moments * self.training.moment_bytes * elements

    @property
    def _whole_sums(self) -> bool:
        """bf16 with fp32 sums at stage 1: BF16_Optimizer."""
        training = self.training
        wide = training.precision == "bf16" and training.accumulation_bytes == 4
        return self.zero.stage == 1 and wide and not self.offload

    # ------------------------------------------------------------------ phases
    def loss(self) -> Items:
        """All activations, and the logits in several copies."""
        summary = self.summary
        kept = self.layers * summary.kept_per_layer + summary.kept_outside
        return add_items(
            self._carried(),
            self._gathered(turn=True),
            {Item.ACTIVATIONS: kept, Item.LOGITS: summary.loss_peak},
        )

    def head(self) -> Items:
        """All activations, and the gradients of the head and of the logits."""
        summary = self.summary
        kept = self.layers * summary.kept_per_layer + summary.kept_outside
        return add_items(
            self._carried(),
            self._gathered(turn=True),
            {
                Item.ACTIVATIONS: kept + summary.head_peak,
                Item.GRADIENTS: self._gradient(self.weighted.head),
            },
        )

    def top_layer(self) -> Items:
        """The first layer of backward: nearly all activations are alive."""
        summary = self.summary
        kept = (self.layers - 1) * summary.kept_per_layer
        inside = self._gradient(self.weighted.largest_in_layer)
        return add_items(
            self._in_backward(turn=True),
            {
                Item.ACTIVATIONS: kept + summary.layer_peak,
                Item.GRADIENTS: inside + self._early_gradients(self.weighted.head),
            },
        )

    def bottom_layer(self) -> Items:
        """The last layer of backward: few activations, but stage 1 has nearly all gradients."""
        inside = self._gradient(self.weighted.largest_in_layer)
        before = self.trained - self.weighted.embedding
        if self.training.accumulation > 1:
            # Already carried over from the previous micro step.
            before = 0
        return add_items(
            self._in_backward(turn=False),
            {
                Item.ACTIVATIONS: self.summary.layer_peak,
                Item.GRADIENTS: inside + self._early_gradients(before),
            },
        )

    def reduction(self) -> Items:
        """After backward: stage 1 has all gradients, and a copy of its own."""
        zero, training = self.zero, self.training
        filled = min(zero.reduce_bucket_size, self.trained)
        items = self._bucket_in_use()
        if zero.stage == 3:
            return {}
        if zero.stage == 0:
            bucket = min(self.trained, ALLREDUCE_ELEMENTS) if training.world_size > 1 else 0
            return {
                Item.GRADIENTS: self._gradient(self.trained),
                Item.REDUCTION_COPY: self._gradient(bucket),
            }
        if self._whole_sums:
            copy = max(4 * self.largest, training.communication_bytes * self.trained)
            return {Item.GRADIENTS: self._gradient(self.trained), Item.REDUCTION_COPY: copy}
        if self.offload:
            largest = self.largest
            items[Item.NORM_SCRATCH] = FP64 * min(largest, self.partition)
        elif zero.stage == 1:
            items = add_items(items, self._own())
        if zero.stage == 1:
            whole = self._early_gradients(self.trained) - self._early_gradients(filled)
            items[Item.GRADIENTS] = whole
        return add_items(items, self._copies(filled))

    def step(self) -> Items:
        """Own gradients, flat and in fp32; norms in fp64."""
        training = self.training
        if self.zero.stage == 0:
            return {
                Item.GRADIENTS: self._gradient(self.trained),
                Item.STEP_GRADIENTS: self._unsharded_step(),
            }
        if self.offload:
            return {}
        wide = training.master_bytes if training.master_bytes != self.element_bytes else 0
        if self.zero.stage == 3:
            groups = sub_groups(training, self.layout.shards, self.layout.trainable)
            largest = max(group.elements for group in groups)
            return {Item.STEP_GRADIENTS: (self.element_bytes + wide) * largest}
        if self._whole_sums:
            return {Item.GRADIENTS: self._gradient(self.trained)}
        if training.accumulation_bytes > self.element_bytes:
            return {Item.GRADIENT_PARTITION: training.accumulation_bytes * self.partition}
        scratch = FP64 * min(self.largest, self.partition)
        flat = (self.element_bytes + wide) * self.partition
        return add_items(self._own(), {Item.STEP_GRADIENTS: max(flat, scratch)})

    def _unsharded_step(self) -> int:
        if self.training.precision == "fp32":
            return 0
        return (8 if self.training.fused_adam else 4) * self.trained

    # ------------------------------------------------------------------ pieces
    def _gradient(self, elements: int) -> int:
        return self.element_bytes * elements

    def _early_gradients(self, elements: int) -> int:
        """Gradients that stay as autograd made them: all at stage 1, none at stage 2."""
        if self.zero.stage >= 2:
            return 0
        size = self.element_bytes
        if self.zero.stage == 1 and not self._whole_sums:
            size = max(size, self.training.accumulation_bytes)
        return min(size * elements, size * self.trained)

    def _carried(self) -> Items:
        """Gradients of earlier micro steps that are alive in a later one."""
        if self.training.accumulation == 1 or self.zero.stage == 3:
            return {}
        if self.zero.stage <= 1:
            whole = {Item.GRADIENTS: self._early_gradients(self.trained)}
            return add_items(whole, self._bucket_in_use())
        return self._own()

    def _in_backward(self, *, turn: bool) -> Items:
        """What is alive in a layer's backward: bucket, own gradients, gathered weights, a copy."""
        carried = self.training.accumulation > 1
        parts = [self._gathered(turn=turn)]
        if self.zero.stage == 2:
            parts += [self._own(), self._bucket_in_use()] + ([self._own()] if carried else [])
        elif carried:
            parts.append(self._carried())
        else:
            parts.append(self._bucket_in_use())
        if self.zero.stage >= 2 or self.zero.overlap_comm:
            parts.append(self._copies(self.zero.reduce_bucket_size))
        return add_items(*parts)

    def _bucket_in_use(self) -> Items:
        if self.zero.stage not in (1, 2) or self._whole_sums:
            return {}
        number = 2 if self.zero.overlap_comm else 1
        return {Item.REDUCE_BUCKET: number * self.bucket}

    def _own(self) -> Items:
        if self.offload or self.zero.stage not in (1, 2) or self._whole_sums:
            return {}
        size = max(self.element_bytes, self.training.accumulation_bytes)
        return {Item.GRADIENT_PARTITION: size * self.partition}

    def _copies(self, elements: int) -> Items:
        """A bucket's second copy, where its pieces belong to more than one rank."""
        filled = min(elements, self.zero.reduce_bucket_size, self.trained)
        cut = self.zero.stage == 3 or filled > self.partition // 2
        if self.training.world_size == 1 or not cut:
            return {}
        return {Item.REDUCTION_COPY: self.element_bytes * filled}

    def _gathered(self, *, turn: bool) -> Items:
        """Stage 3: what is whole, at the turn from forward to backward or at its end.

        At the turn the prefetcher keeps everything that is still whole and will be used again, up
        to `max_live_parameters`. Without prefetching only the reuse distance keeps parameters, in
        both directions.
        """
        if self.zero.stage < 3 or self.training.world_size == 1:
            return {}
        zero, weighted = self.zero, self.weighted
        rest = self.total - weighted.embedding
        ahead = min(zero.prefetch_bucket_size, rest, zero.max_live_parameters)
        if not turn:
            whole = weighted.largest_in_layer
        elif zero.prefetch_bucket_size:
            whole, ahead = min(zero.max_live_parameters, rest), 0
        else:
            whole = min(zero.max_reuse_distance // 2, rest)
        whole = max(whole, weighted.head if turn else 0)
        return {
            Item.GATHERED_WEIGHTS: self.element_bytes * (whole + ahead),
            Item.GATHER_BUFFER: self.element_bytes * ahead,
        }


def add_items(*parts: Items) -> Items:
    """Return the sums of items, item by item.

    Example:
        >>> add_items({Item.WEIGHTS: 1}, {Item.WEIGHTS: 2, Item.MOMENTS: 3})
        {<Item.WEIGHTS: 0>: 3, <Item.MOMENTS: 3>: 3}
    """
    total: Items = {}
    for part in parts:
        for item, size in part.items():
            total[item] = total.get(item, 0) + size
    return total
