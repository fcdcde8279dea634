"""LLaMA and similar families (mistral, qwen2, and mixtral with experts): parameters and program.

Kept per layer without checkpointing, in 16 bit: `tokens x (20 hidden + 4 kv + 8 mlp + 4 heads +
8)` bytes, where kv is the width of the keys and mlp that of the MLP. With checkpointing only the
layer's input, and one whole layer while it runs again.
"""

from dataclasses import dataclass

from autotune.job.model_shape import ModelShape
from autotune.predict.program.attention import attention, attention_backward
from autotune.predict.program.decoder import Decoder
from autotune.predict.program.experts import ExpertSizes, expert_sizes, experts, experts_backward
from autotune.predict.program.items import Item
from autotune.predict.program.layers import FP32, Dense, Saved
from autotune.predict.program.parameters import Weights
from autotune.predict.training_job import Training

_BIASED = frozenset({"qwen2", "qwen2_moe"})
"""Families whose q, k and v have biases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer's modules."""

    query: Dense
    key: Dense
    value: Dense
    output: Dense
    gate: Dense | None
    """None where experts replace the MLP."""
    up: Dense | None
    down: Dense | None
    router: Dense | None
    expert_weights: tuple[int, int] | None
    """All experts' gate and up matrices in one tensor, all down matrices in another."""
    input_norm: int
    post_norm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The modules of the whole model, and its parameters."""

    weights: Weights
    embedding: int
    layers: tuple[Layer, ...]
    norm: int
    head: Dense


def network(training: Training) -> Network:
    """Lay out the parameters in the order in which Hugging Face registers them."""
    shape = training.model
    weights = Weights(training)
    hidden, vocab = shape.hidden_size, shape.vocab_size
    embedding = weights.add("embed_tokens", vocab * hidden)
    layers = tuple(_layer(weights, shape, f"layers.{i}") for i in range(shape.num_hidden_layers))
    norm = weights.add("norm", hidden)
    tied = shape.tie_word_embeddings
    head = embedding if tied else weights.add("lm_head", vocab * hidden)
    return Network(
        weights=weights,
        embedding=embedding,
        layers=layers,
        norm=norm,
        head=Dense(weight=head, num_inputs=hidden, num_outputs=vocab),
    )


def _layer(weights: Weights, shape: ModelShape, name: str) -> Layer:
    hidden, mlp = shape.hidden_size, shape.intermediate_size
    width, key_value = shape.attention_width, shape.key_value_width
    bias = shape.model_type in _BIASED or bool(shape.hf_config.get("attention_bias"))
    query = weights.dense(f"{name}.q_proj", hidden, width, bias=bias, adapted=True)
    key = weights.dense(f"{name}.k_proj", hidden, key_value, bias=bias)
    value = weights.dense(f"{name}.v_proj", hidden, key_value, bias=bias, adapted=True)
    output = weights.dense(f"{name}.o_proj", width, hidden)
    sizes = expert_sizes(shape)
    gate = up = down = router = expert_weights = None
    if sizes is None:
        gate = weights.dense(f"{name}.gate_proj", hidden, mlp)
        up = weights.dense(f"{name}.up_proj", hidden, mlp)
        down = weights.dense(f"{name}.down_proj", mlp, hidden)
    else:
        router = weights.dense(f"{name}.router", hidden, sizes.num_experts)
        expert_weights = (
            weights.add(f"{name}.experts.gate_up", 2 * sizes.elements, expert=True),
            weights.add(f"{name}.experts.down", sizes.elements, expert=True),
        )
    return Layer(
        query=query,
        key=key,
        value=value,
        output=output,
        gate=gate,
        up=up,
        down=down,
        router=router,
        expert_weights=expert_weights,
        input_norm=weights.add(f"{name}.input_layernorm", hidden),
        post_norm=weights.add(f"{name}.post_attention_layernorm", hidden),
    )


class LlamaDecoder(Decoder):
    """Records LLaMA's layers."""

    holds_embeddings = True

    def __init__(self, training: Training) -> None:
        net = network(training)
        super().__init__(training, net.weights, num_layers=len(net.layers), head=net.head)
        self.net = net
        self.experts: ExpertSizes | None = expert_sizes(training.model)
        if training.model.tie_word_embeddings:
            self.layers.tied.add(net.embedding)

    def embed(self) -> int:
        """Record the look-up, and the rotary tables that all layers share."""
        self.recorder.fetch()  # the model without its head
        stream = self.layers.embedding(self.net.embedding, self.hidden)
        self.recorder.fetch()  # the rotary tables
        self.shared = self._rotary_tables()
        return stream

    def _rotary_tables(self) -> list[int]:
        """Record cosine and sine of every position, computed in fp32."""
        shape, recorder = self.training.model, self.recorder
        head = shape.attention_width // shape.num_attention_heads
        size = self.training.seq_len * head * FP32

        def table(num_bytes: int) -> int:
            return recorder.allocate(num_bytes, Item.ACTIVATIONS)

        angles, doubled = table(size // 2), table(size)
        scaled = []
        for _ in ("cosine", "sine"):
            plain = table(size)
            scaled.append(table(size))
            recorder.free(plain)
        if not self.layers.sizes.low_precision:
            recorder.free(angles, doubled)
            return scaled
        narrow = [table(size * self.training.element_bytes // FP32) for _ in scaled]
        recorder.free(angles, doubled, *scaled)
        return narrow

    def embed_backward(self, gradient: int) -> None:
        """Record the table's gradient."""
        self.layers.embedding_backward(self.net.embedding, gradient)

    def final_norm(self) -> tuple[int, Saved]:
        """Record the norm before the head."""
        return self.layers.rms_norm(self.net.norm, self.hidden, save=True)

    def _through(self, index: int) -> bool:
        """Whether anything below a layer is trained, so that its input needs a gradient."""
        weights = self.net.weights
        return not weights.frozen or index > self.first_trained_layer

    def final_norm_backward(self, gradient: int, saved: Saved) -> int:
        """Record its backward."""
        result = self.layers.rms_norm_backward(self.net.norm, self.hidden, gradient, saved)
        assert result is not None
        return result

    def last_weights(self, index: int) -> tuple[int, ...]:
        """Return the down projection, or all of the block with experts."""
        layer = self.net.layers[index]
        if layer.down is not None:
            return layer.down.own
        assert layer.router is not None
        assert layer.expert_weights is not None
        return *layer.router.own, *layer.expert_weights

    # ------------------------------------------------------------------ forward
    def forward(
        self, index: int, stream: int, *, save: bool, again: bool = False
    ) -> tuple[int | None, Saved]:
        """Record one layer; `stream`, its input, belongs to the caller."""
        del stream
        recorder, layers, layer = self.recorder, self.layers, self.net.layers[index]
        recorder.fetch()  # the layer
        normal, kept = layers.rms_norm(
            layer.input_norm, self.hidden, save=save, through=self._through(index)
        )
        recorder.fetch()  # its attention
        saved = Saved({f"input_{k}": v for k, v in kept.slots.items()})
        query = layers.linear(layer.query)
        key, value = layers.linear(layer.key), layers.linear(layer.value)
        rotated = [self.rotate(w) for w in (self.attention.width, self.attention.key_value_width)]
        recorder.free(query, key)
        mixed, kept = attention(layers, self.attention, (*rotated, value), save=save)
        saved.slots |= kept.slots | {"mixed": mixed}
        projected = layers.linear(layer.output)
        if save:
            saved.slots["normal_in"] = normal
        else:
            recorder.free(normal, mixed, *kept.slots.values())
        middle = layers.activation(self.hidden)
        recorder.free(projected)
        normal, kept = layers.rms_norm(layer.post_norm, self.hidden, save=save)
        saved.slots |= {f"post_{k}": v for k, v in kept.slots.items()} | {"normal_mlp": normal}
        if self.experts is None:
            down = self.mlp_forward(layer, saved, save=save, again=again)
        else:
            down = experts(
                layers, self.experts, self._expert_layer(layer), saved, save=save, again=again
            )
        if not save or not self._keeps_mlp_input(layer):
            recorder.free(saved.take("normal_mlp"))
        if down is None:
            recorder.free(middle)
            return None, saved
        output = layers.activation(self.hidden)
        recorder.free(down, middle)
        return output, saved if save else Saved()

    def _keeps_mlp_input(self, layer: Layer) -> bool:
        """Whether the modules that read it are trained."""
        first = layer.gate or layer.router
        assert first is not None
        return self.layers.keeps_input(first)

    def enter_backward(self) -> None:
        """Backward reaches the layer and its MLP before the MLP's last module."""
        self.recorder.fetch()
        self.recorder.fetch()

    def rotate(self, width: int) -> int:
        """Record rotary embeddings: `x cos + rotate_half(x) sin`."""
        layers, recorder = self.layers, self.recorder
        cosine = layers.activation(width)
        negated = layers.activation(width // 2)
        turned = layers.activation(width)
        recorder.free(negated)
        sine = layers.activation(width)
        recorder.free(turned)
        total = layers.activation(width)
        recorder.free(cosine, sine)
        return total

    def mlp_forward(self, layer: Layer, saved: Saved, *, save: bool, again: bool) -> int | None:
        """Record `down(silu(gate(x)) * up(x))`; gate, silu, up and the product are kept."""
        assert layer.gate is not None
        assert layer.up is not None
        assert layer.down is not None
        layers, recorder = self.layers, self.recorder
        recorder.fetch()  # the MLP
        gate = layers.linear(layer.gate)
        recorder.fetch()  # SiLU
        silu = layers.activation(self.mlp)
        if not save:
            recorder.free(gate)
        up = layers.linear(layer.up)
        product = layers.activation(self.mlp)
        if not save:
            recorder.free(silu, up)
        if again:
            recorder.fetch(*layer.down.own)
        down = None if again else layers.linear(layer.down)
        if not save:
            recorder.free(product)
        elif not layers.keeps_input(layer.down):
            recorder.free(product)
            saved.slots |= {"gate": gate, "silu": silu, "up": up}
        else:
            saved.slots |= {"gate": gate, "silu": silu, "up": up, "product": product}
        return down

    def _expert_layer(self, layer: Layer) -> tuple[Dense, tuple[int, int], int]:
        assert layer.router is not None
        assert layer.expert_weights is not None
        return layer.router, layer.expert_weights, self.training.expert_parallel_size

    # ------------------------------------------------------------------ backward
    def backward(self, index: int, gradient: int, saved: Saved) -> int | None:
        """Record one layer's backward; `gradient`, of its output, ends here."""
        recorder, layers, layer = self.recorder, self.layers, self.net.layers[index]
        if not self.training.activation_checkpointing:
            self.enter_backward()
        if self.experts is None:
            into_norm = self._mlp_backward(layer, gradient, saved)
        else:
            into_norm = experts_backward(
                layers,
                self.experts,
                self._expert_layer(layer),
                saved,
                leaf=self.training.zero.stage == 3,
            )
        through_norm = layers.rms_norm_backward(
            layer.post_norm, self.hidden, into_norm, _part(saved, "post_")
        )
        residual = layers.activation_gradient(self.hidden)
        recorder.free(gradient, through_norm)
        recorder.fetch()  # attention
        # The residual's gradient serves the attention branch and the sum at its end.
        mixed = layers.linear_backward(layer.output, residual, borrowed=True)
        query, key, value = attention_backward(layers, self.attention, mixed, saved)
        widths = self.attention.key_value_width, self.attention.width
        key, query = (
            self._rotate_backward(width, slot)
            for width, slot in zip(widths, (key, query), strict=True)
        )
        total = layers.linear_backward(layer.value, value)
        key = self._joined_heads(self.attention.key_value_width, key)
        total = layers.linear_backward(layer.key, key, added_to=total)
        query = self._joined_heads(self.attention.width, query)
        into_norm = layers.linear_backward(
            layer.query, query, saved.take("normal_in"), added_to=total
        )
        through_norm = layers.rms_norm_backward(
            layer.input_norm,
            self.hidden,
            into_norm,
            _part(saved, "input_"),
            through=self._through(index),
        )
        result = layers.activation_gradient(self.hidden) if through_norm is not None else None
        recorder.free(residual, through_norm)
        return result

    def _rotate_backward(self, width: int, gradient: int) -> int:
        layers, recorder = self.layers, self.recorder
        turned = layers.activation_gradient(width)
        negated = layers.activation_gradient(width // 2)
        first = layers.activation_gradient(width)
        recorder.free(negated)
        second = layers.activation_gradient(width)
        recorder.free(turned)
        sine = layers.activation_gradient(width)
        recorder.free(first, second)
        cosine = layers.activation_gradient(width)
        recorder.free(gradient)
        total = layers.activation_gradient(width)
        recorder.free(sine, cosine)
        return total

    def _joined_heads(self, width: int, gradient: int) -> int:
        """Record the copy that joins the heads again: rotation's gradient is by head."""
        copy = self.layers.activation_gradient(width)
        self.recorder.free(gradient)
        return copy

    def _mlp_backward(self, layer: Layer, gradient: int, saved: Saved) -> int:
        assert layer.gate is not None
        assert layer.up is not None
        assert layer.down is not None
        layers, recorder = self.layers, self.recorder
        product = layers.linear_backward(layer.down, gradient, saved.take("product"), borrowed=True)
        of_up = layers.activation_gradient(self.mlp)
        of_silu = layers.activation_gradient(self.mlp)
        recorder.free(product, saved.take("silu"), saved.take("up"))
        by_up = layers.linear_backward(layer.up, of_up)
        recorder.fetch()  # SiLU
        of_gate = layers.activation_gradient(self.mlp)
        recorder.free(of_silu, saved.take("gate"))
        return layers.linear_backward(layer.gate, of_gate, saved.take("normal_mlp"), added_to=by_up)


def _part(saved: Saved, prefix: str) -> Saved:
    """Split off what one norm kept."""
    names = [name for name in saved.slots if name.startswith(prefix)]
    return Saved({name.removeprefix(prefix): saved.slots.pop(name) for name in names})
