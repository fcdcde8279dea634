"""Building blocks of transformer programs: what each PyTorch operation allocates and keeps.

Every function records the operation's tensors in the order in which PyTorch allocates and frees
them, temporaries included, because fragmentation depends on the order. `save` is False inside a
checkpointed forward, where autograd keeps nothing.
"""

from dataclasses import dataclass, field

from autotune.predict.program.events import Recorder
from autotune.predict.program.items import Item

FP32 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What every layer of a micro step has in common."""

    tokens: int
    """Of one micro step on one rank: micro batch x sequence length."""
    element_bytes: int
    micro_batch_size: int
    seq_len: int

    @property
    def low_precision(self) -> bool:
        """Whether fp32 copies are extra tensors."""
        return self.element_bytes < FP32


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """A linear module: indices of its parameters, and its widths."""

    weight: int
    num_inputs: int
    num_outputs: int
    bias: int | None = None
    adapter: tuple[int, int, int] | None = None
    """LoRA: the two adapter parameters and the rank between them; the weight is then frozen."""

    @property
    def own(self) -> tuple[int, ...]:
        """Parameters of the module, without adapters."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """A LayerNorm's parameters."""

    weight: int
    bias: int


@dataclass(slots=True)
class Saved:
    """Slots that autograd keeps of one layer, by the name of the tensor."""

    slots: dict[str, int] = field(default_factory=dict)

    def take(self, name: str) -> int | None:
        """Return a slot once; None where it was not kept."""
        return self.slots.pop(name, None)


class Layers:
    """Records layers of one model at one batch size."""

    def __init__(self, recorder: Recorder, sizes: Sizes) -> None:
        self.recorder = recorder
        self.sizes = sizes
        self.tied: set[int] = set()
        """Parameters that two modules share."""
        self._waiting: dict[int, int] = {}

    def activation(self, width: int, *, fp32: bool = False) -> int:
        """Allocate a tensor of `width` elements a token."""
        element_bytes = FP32 if fp32 else self.sizes.element_bytes
        return self.recorder.allocate(element_bytes * self.sizes.tokens * width, Item.ACTIVATIONS)

    def activation_gradient(self, width: int, *, fp32: bool = False) -> int:
        """Allocate the gradient of a tensor of `width` elements a token."""
        element_bytes = FP32 if fp32 else self.sizes.element_bytes
        return self.recorder.allocate(
            element_bytes * self.sizes.tokens * width, Item.ACTIVATION_GRADIENTS
        )

    def weight_gradient(self, parameter: int) -> int | None:
        """Allocate a parameter's gradient; None for a frozen one."""
        known = self.recorder.parameters[parameter]
        if not known.trainable:
            return None
        return self.recorder.allocate(self.sizes.element_bytes * known.num_elements, Item.GRADIENTS)

    def accumulate(self, parameter: int | None, slot: int | None) -> None:
        """Pass a gradient to the engine; a shared parameter's first gradient waits for the second.

        The two are added out of place, so three tensors of the parameter's size are alive at once.
        """
        if parameter is None or slot is None:
            return
        if parameter in self.tied:
            first = self._waiting.pop(parameter, None)
            if first is None:
                self._waiting[parameter] = slot
                return
            total = self.weight_gradient(parameter)
            self.recorder.free(first, slot)
            slot = total
        if slot is not None:
            self.recorder.gradient(parameter, slot)

    def trainable(self, parameter: int) -> bool:
        """Whether a parameter gets a gradient."""
        return self.recorder.parameters[parameter].trainable

    def keeps_input(self, dense: Dense) -> bool:
        """Whether a linear module's backward needs its input."""
        return self.trainable(dense.weight) or dense.adapter is not None

    # ------------------------------------------------------------------ linear
    def linear(self, dense: Dense, item: Item = Item.ACTIVATIONS) -> int:
        """Record `y = x W`; the caller keeps `x` if backward needs it."""
        recorder = self.recorder
        recorder.fetch(*dense.own)
        output = self.product(dense, item)
        recorder.release(*dense.own)
        return output if dense.adapter is None else self._adapted(dense, output)

    def product(self, dense: Dense, item: Item = Item.ACTIVATIONS) -> int:
        """Record the same inside a module that has gathered the weights."""
        sizes = self.sizes
        self.recorder.workspace(0)
        return self.recorder.allocate(sizes.element_bytes * sizes.tokens * dense.num_outputs, item)

    def linear_backward(
        self,
        dense: Dense,
        gradient: int | None,
        *kept: int | None,
        borrowed: bool = False,
        added_to: int | None = None,
    ) -> int:
        """Record the gradients of a linear module; returns that of its input.

        Args:
            dense: the module.
            gradient: the gradient of its output, which ends here unless `borrowed`.
            kept: tensors that forward kept for this node; they go before the hook runs.
            borrowed: the output's gradient is still needed elsewhere, as on a residual branch.
            added_to: another module's gradient of the same input, which ends in a sum with this
                one, before the hook of this module's weight runs if it has no bias.
        """
        recorder = self.recorder
        recorder.fetch(*dense.own)
        recorder.workspace(1)
        if dense.adapter is not None:
            self._adapter_backward(dense)
        # A plain product computes the weight's gradient first, one with a bias the input's.
        weight = self.weight_gradient(dense.weight) if dense.bias is None else None
        result = self.activation_gradient(dense.num_inputs)
        bias = None
        if dense.bias is not None:
            weight = self.weight_gradient(dense.weight)
            bias = self.weight_gradient(dense.bias)
        # A node's inputs are freed before the gradient's hook runs.
        recorder.free(None if borrowed else gradient, *kept)
        if dense.bias is not None:
            self.accumulate(dense.bias, bias)
            self.accumulate(dense.weight, weight)
        if added_to is not None:
            total = self.activation_gradient(dense.num_inputs)
            recorder.free(added_to, result)
            result = total
        if dense.bias is None:
            self.accumulate(dense.weight, weight)
        recorder.release(*dense.own)
        return result

    def _adapted(self, dense: Dense, output: int) -> int:
        """Record LoRA's branch: `y + scale * B(A(x))`; the low-rank middle is kept."""
        assert dense.adapter is not None
        first, second, rank = dense.adapter
        recorder = self.recorder
        recorder.fetch(first)
        middle = self.activation(rank)
        recorder.release(first)
        recorder.fetch(second)
        branch = self.activation(dense.num_outputs)
        recorder.release(second)
        scaled = self.activation(dense.num_outputs)
        recorder.free(branch)
        total = self.activation(dense.num_outputs)
        recorder.free(scaled, output)
        # The middle has the adapter's rank as width; it is alive until the layer's backward ends.
        self.recorder.free(middle)
        return total

    def _adapter_backward(self, dense: Dense) -> None:
        assert dense.adapter is not None
        first, second, rank = dense.adapter
        recorder = self.recorder
        scaled = self.activation_gradient(dense.num_outputs)
        recorder.fetch(second)
        middle = self.activation_gradient(rank)
        weight = self.weight_gradient(second)
        recorder.free(scaled)
        self.accumulate(second, weight)
        recorder.release(second)
        recorder.fetch(first)
        branch = self.activation_gradient(dense.num_inputs)
        weight = self.weight_gradient(first)
        recorder.free(middle)
        self.accumulate(first, weight)
        recorder.release(first)
        recorder.free(branch)

    # ------------------------------------------------------------------ norms
    def rms_norm(
        self, weight: int, width: int, *, save: bool, through: bool = True
    ) -> tuple[int, Saved]:
        """Record Hugging Face's RMSNorm, which computes in fp32.

        Kept in 16 bit: the fp32 input (4 bytes an element) and one fp32 scale a token, unless
        `through` is False since nothing below is trained; for the weight's gradient, unless it is
        frozen, the normalised input (2). The output (2) is kept by its users.
        """
        recorder = self.recorder
        recorder.fetch(weight)
        wide = self.activation(width, fp32=True)
        squared = self.activation(width, fp32=True)
        variance = self.activation(1, fp32=True)
        recorder.free(squared)
        shifted = self.activation(1, fp32=True)
        scale = self.activation(1, fp32=True)
        recorder.free(shifted)
        normal_wide = self.activation(width, fp32=True)
        keeps_input, keeps_normal = save and through, save and self.trainable(weight)
        if not keeps_input:
            recorder.free(wide)
        if self.sizes.low_precision:
            normal = self.activation(width)
            output = self.activation(width)
            recorder.free(normal_wide)
        else:
            normal = normal_wide
            output = self.activation(width)
        recorder.free(variance)
        recorder.release(weight)
        saved = Saved({"wide": wide, "scale": scale} if keeps_input else {})
        if not keeps_input:
            recorder.free(scale)
        if keeps_normal:
            saved.slots["normal"] = normal
        else:
            recorder.free(normal)
        return output, saved

    def rms_norm_backward(
        self, weight: int, width: int, gradient: int, saved: Saved, *, through: bool = True
    ) -> int | None:
        """Record RMSNorm's backward; up to five fp32 tensors are alive at once.

        Returns the gradient of its input, None if nothing below is trained.
        """
        recorder = self.recorder
        recorder.fetch(weight)
        normal_gradient = self.activation_gradient(width) if through else None
        product = self.activation_gradient(width) if self.trainable(weight) else None
        of_weight = self.weight_gradient(weight)
        recorder.free(product, gradient, saved.take("normal"))
        self.accumulate(weight, of_weight)
        if normal_gradient is None:
            recorder.release(weight)
            return None
        if self.sizes.low_precision:
            wide_gradient = self.activation_gradient(width, fp32=True)
            recorder.free(normal_gradient)
        else:
            wide_gradient = normal_gradient
        of_scale = self.activation_gradient(width, fp32=True)
        by_scale = self.activation_gradient(width, fp32=True)
        summed = self.activation_gradient(1, fp32=True)
        recorder.free(wide_gradient, of_scale)
        # rsqrt's backward: cube, product, scaled.
        root = [self.activation_gradient(1, fp32=True) for _ in range(3)]
        recorder.free(root[0], root[1], summed, saved.take("scale"))
        power = [self.activation_gradient(width, fp32=True)]
        recorder.free(root[2])
        power += [self.activation_gradient(width, fp32=True) for _ in range(3)]
        recorder.free(power[1], power[2], power[0], saved.take("wide"))
        total = self.activation_gradient(width, fp32=True)
        recorder.free(by_scale, power[3])
        if self.sizes.low_precision:
            result = self.activation_gradient(width)
            recorder.free(total)
        else:
            result = total
        recorder.release(weight)
        return result

    def layer_norm(self, norm: Norm, width: int) -> tuple[int, Saved]:
        """Record a fused LayerNorm: it keeps its input (the caller's) and two scalars a token."""
        recorder = self.recorder
        recorder.fetch(norm.weight, norm.bias)
        output = self.activation(width)
        mean, scale = self.activation(1, fp32=True), self.activation(1, fp32=True)
        recorder.release(norm.weight, norm.bias)
        return output, Saved({"mean": mean, "scale": scale})

    def layer_norm_backward(self, norm: Norm, width: int, gradient: int, saved: Saved) -> int:
        """Record LayerNorm's backward; the caller frees the norm's input."""
        recorder = self.recorder
        recorder.fetch(norm.weight, norm.bias)
        result = self.activation_gradient(width)
        gradients = self.weight_gradient(norm.weight), self.weight_gradient(norm.bias)
        recorder.free(gradient, saved.take("mean"), saved.take("scale"))
        self.accumulate(norm.weight, gradients[0])
        self.accumulate(norm.bias, gradients[1])
        recorder.release(norm.weight, norm.bias)
        return result

    # ------------------------------------------------------------------ embeddings
    def embedding(self, weight: int, width: int, *, one_row: bool = False) -> int:
        """Record a look-up, for all sequences or for one that they share."""
        sizes = self.sizes
        tokens = sizes.seq_len if one_row else sizes.tokens
        self.recorder.fetch(weight)
        output = self.recorder.allocate(sizes.element_bytes * tokens * width, Item.ACTIVATIONS)
        self.recorder.release(weight)
        return output

    def embedding_backward(self, weight: int, gradient: int, *, last: bool = True) -> None:
        """Record a dense embedding gradient, as large as the table."""
        self.recorder.fetch(weight)
        slot = self.weight_gradient(weight)
        if last:
            self.recorder.free(gradient)
        self.accumulate(weight, slot)
        self.recorder.release(weight)

    # ------------------------------------------------------------------ dropout
    def dropout(self, tensor: int, width: int, rate: float) -> tuple[int, int | None]:
        """Record a dropout: its output and mask; nothing at rate 0."""
        if rate <= 0:
            return tensor, None
        output = self.activation(width)
        mask = self.recorder.allocate(self.sizes.tokens * width, Item.ACTIVATIONS)
        self.recorder.free(tensor)
        return output, mask

    def dropout_backward(self, gradient: int, width: int, mask: int | None) -> int:
        """Record dropout's backward on a gradient that is still needed elsewhere."""
        if mask is None:
            return gradient
        result = self.activation_gradient(width)
        self.recorder.free(mask)
        return result
