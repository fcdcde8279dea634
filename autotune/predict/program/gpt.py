"""GPT-2 and OPT: LayerNorm, biases, learned positions, an MLP without a gate.

Kept per GPT-2 layer without checkpointing, in 16 bit: `tokens x (16 hidden + 10 mlp + 4 heads +
16)` bytes (its GELU is written out in five operations); OPT's ReLU keeps 2 mlp instead of 10.
"""

from dataclasses import dataclass

from autotune.job.model_shape import ModelShape
from autotune.predict.program.attention import attention, attention_backward
from autotune.predict.program.decoder import Decoder
from autotune.predict.program.items import Item
from autotune.predict.program.layers import Dense, Norm, Saved
from autotune.predict.program.parameters import Weights
from autotune.predict.training_job import Training

_OPT_EXTRA_POSITIONS = 2
"""OPT's position table has two more rows than the config's length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer's modules."""

    projections: tuple[Dense, ...]
    """GPT-2: one that makes query, key and value; OPT: key, value, query."""
    output: Dense
    up: Dense
    down: Dense
    first_norm: Norm
    second_norm: Norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The modules of the whole model, and its parameters."""

    weights: Weights
    embedding: int
    positions: int
    layers: tuple[Layer, ...]
    norm: Norm
    head: Dense


def network(training: Training) -> Network:
    """Lay out the parameters in the order in which Hugging Face registers them."""
    shape = training.model
    is_opt = shape.model_type == "opt"
    weights = Weights(training)
    hidden = shape.hidden_size
    embedding = weights.add("wte", shape.vocab_size * hidden)
    rows = (shape.max_position_embeddings or 1_024) + (_OPT_EXTRA_POSITIONS if is_opt else 0)
    positions = weights.add("wpe", rows * hidden)
    final = _norm(weights, "final_norm", hidden) if is_opt else None
    make = _opt_layer if is_opt else _gpt2_layer
    layers = tuple(make(weights, f"layers.{i}", shape) for i in range(shape.num_hidden_layers))
    final = final or _norm(weights, "ln_f", hidden)
    tied = shape.tie_word_embeddings
    head = embedding if tied else weights.add("lm_head", shape.vocab_size * hidden)
    return Network(
        weights=weights,
        embedding=embedding,
        positions=positions,
        layers=layers,
        norm=final,
        head=Dense(weight=head, num_inputs=hidden, num_outputs=shape.vocab_size),
    )


def _norm(weights: Weights, name: str, width: int) -> Norm:
    return Norm(
        weight=weights.add(f"{name}.weight", width), bias=weights.add(f"{name}.bias", width)
    )


def _gpt2_layer(weights: Weights, name: str, shape: ModelShape) -> Layer:
    hidden, mlp, width = shape.hidden_size, shape.intermediate_size, shape.attention_width
    first = _norm(weights, f"{name}.ln_1", hidden)
    projection = weights.dense(f"{name}.c_attn", hidden, 3 * width, bias=True, adapted=True)
    output = weights.dense(f"{name}.c_proj", width, hidden, bias=True)
    second = _norm(weights, f"{name}.ln_2", hidden)
    return Layer(
        projections=(projection,),
        output=output,
        up=weights.dense(f"{name}.c_fc", hidden, mlp, bias=True),
        down=weights.dense(f"{name}.mlp.c_proj", mlp, hidden, bias=True),
        first_norm=first,
        second_norm=second,
    )


def _opt_layer(weights: Weights, name: str, shape: ModelShape) -> Layer:
    hidden, mlp, width = shape.hidden_size, shape.intermediate_size, shape.attention_width
    projections = tuple(
        weights.dense(f"{name}.{p}_proj", hidden, width, bias=True, adapted=p != "k")
        for p in ("k", "v", "q")
    )
    output = weights.dense(f"{name}.out_proj", width, hidden, bias=True)
    first = _norm(weights, f"{name}.self_attn_layer_norm", hidden)
    return Layer(
        projections=projections,
        output=output,
        up=weights.dense(f"{name}.fc1", hidden, mlp, bias=True),
        down=weights.dense(f"{name}.fc2", mlp, hidden, bias=True),
        first_norm=first,
        second_norm=_norm(weights, f"{name}.final_layer_norm", hidden),
    )


class GptDecoder(Decoder):
    """Records the layers of GPT-2 and OPT."""

    keeps_stream = True

    def __init__(self, training: Training) -> None:
        net = network(training)
        super().__init__(training, net.weights, num_layers=len(net.layers), head=net.head)
        self.net = net
        self.is_opt = training.model.model_type == "opt"
        config = training.model.hf_config
        rate = config.get("dropout" if self.is_opt else "resid_pdrop")
        self.dropout_rate = 0.1 if rate is None else float(rate)
        rate = config.get("dropout" if self.is_opt else "embd_pdrop")
        self.embedding_dropout_rate = 0.0 if self.is_opt else 0.1 if rate is None else float(rate)
        self.embedding_mask: int | None = None
        if training.model.tie_word_embeddings:
            self.layers.tied.add(net.embedding)

    def embed(self) -> int:
        """Record tokens plus positions."""
        layers = self.layers
        words = layers.embedding(self.net.embedding, self.hidden)
        places = layers.embedding(self.net.positions, self.hidden, one_row=not self.is_opt)
        stream = layers.activation(self.hidden)
        self.named = [words, places]
        stream, self.embedding_mask = layers.dropout(
            stream, self.hidden, self.embedding_dropout_rate
        )
        return stream

    def embed_backward(self, gradient: int) -> None:
        """Record both tables' gradients."""
        layers = self.layers
        through = layers.dropout_backward(gradient, self.hidden, self.embedding_mask)
        row = None
        if not self.is_opt:
            shared = self.training.element_bytes * self.training.seq_len * self.hidden
            row = self.recorder.allocate(shared, Item.ACTIVATION_GRADIENTS)
        layers.embedding_backward(self.net.positions, row or through, last=row is not None)
        layers.embedding_backward(self.net.embedding, through)
        if through != gradient:
            self.recorder.free(gradient)

    def final_norm(self) -> tuple[int, Saved]:
        """Record the norm before the head."""
        norm = self.net.norm
        return self.layers.layer_norm(norm, self.hidden)

    def final_norm_backward(self, gradient: int, saved: Saved) -> int:
        """Record its backward."""
        return self.norm_backward(self.net.norm, gradient, saved, "")

    def last_weights(self, index: int) -> tuple[int, ...]:
        """Return the MLP's second module."""
        return self.net.layers[index].down.own

    # ------------------------------------------------------------------ forward
    def forward(
        self, index: int, stream: int, *, save: bool, again: bool = False
    ) -> tuple[int | None, Saved]:
        """Record one layer; `stream`, its input, belongs to the caller."""
        del stream
        recorder, layers, layer = self.recorder, self.layers, self.net.layers[index]
        saved = Saved()
        normal = self.norm(layer.first_norm, saved, "first_")
        mixed, kept = attention(layers, self.attention, self.project(layer), save=save)
        saved.slots |= kept.slots | {"normal_in": normal, "mixed": mixed}
        if not save:
            recorder.free(saved.take("normal_in"))
        branch = layers.linear(layer.output)
        branch, mask = layers.dropout(branch, self.hidden, self.dropout_rate)
        middle = layers.activation(self.hidden)
        # A variable of GPT-2's block holds it until it returns.
        attended = None if self.is_opt else branch
        recorder.free(branch if self.is_opt else None)
        saved.slots |= {"middle": middle} | _named("first_mask", mask)
        if not save:
            recorder.free(saved.take("mixed"))
        normal = self.norm(layer.second_norm, saved, "second_")
        saved.slots["normal_mlp"] = normal
        up = layers.linear(layer.up)
        product = self.activate(up, saved)
        saved.slots["product"] = product
        if again and self.dropout_rate <= 0:
            recorder.fetch(*layer.down.own)
            recorder.free(attended)
            return None, saved
        branch = layers.linear(layer.down)
        branch, mask = layers.dropout(branch, self.hidden, self.dropout_rate)
        saved.slots |= _named("second_mask", mask)
        if again:
            recorder.free(branch, attended)
            return None, saved
        output = layers.activation(self.hidden)
        recorder.free(branch, attended)
        if save:
            return output, saved
        recorder.free(*saved.slots.values())
        return output, Saved()

    def project(self, layer: Layer) -> tuple[int, ...]:
        """Record query, key and value; OPT scales its queries."""
        layers = self.layers
        if not self.is_opt:
            return (layers.linear(layer.projections[0]),)
        of_key, of_value, of_query = layer.projections
        query = layers.linear(of_query)
        scaled = layers.activation(self.attention.width)
        self.recorder.free(query)
        return scaled, layers.linear(of_key), layers.linear(of_value)

    def norm(self, norm: Norm, saved: Saved, prefix: str) -> int:
        """Record a LayerNorm, keeping its statistics under `prefix`."""
        output, kept = self.layers.layer_norm(norm, self.hidden)
        saved.slots |= {f"{prefix}{name}": slot for name, slot in kept.slots.items()}
        return output

    def norm_backward(self, norm: Norm, gradient: int, saved: Saved, prefix: str) -> int:
        """Record a LayerNorm's backward."""
        names = [n for n in saved.slots if n.startswith(prefix) and n.endswith(("mean", "scale"))]
        kept = Saved({n.removeprefix(prefix): saved.slots.pop(n) for n in names})
        return self.layers.layer_norm_backward(norm, self.hidden, gradient, kept)

    def activate(self, up: int, saved: Saved) -> int:
        """Record ReLU, or GPT-2's GELU: `0.5 x (1 + tanh(c (x + 0.044715 x^3)))`."""
        layers, recorder = self.layers, self.recorder
        if self.is_opt:
            product = layers.activation(self.mlp)
            recorder.free(up)
            return product
        half = layers.activation(self.mlp)
        cube = layers.activation(self.mlp)
        scaled = layers.activation(self.mlp)
        recorder.free(cube)
        total = layers.activation(self.mlp)
        recorder.free(scaled)
        inner = layers.activation(self.mlp)
        recorder.free(total)
        tanh = layers.activation(self.mlp)
        recorder.free(inner)
        plus_one = layers.activation(self.mlp)
        product = layers.activation(self.mlp)
        saved.slots |= {"up": up, "half": half, "tanh": tanh, "plus_one": plus_one}
        return product

    # ------------------------------------------------------------------ backward
    def backward(self, index: int, gradient: int, saved: Saved) -> int:
        """Record one layer's backward; `gradient`, of its output, ends here."""
        recorder, layers, layer = self.recorder, self.layers, self.net.layers[index]
        branch = layers.dropout_backward(gradient, self.hidden, saved.take("second_mask"))
        # ReLU keeps its result, which is the product, too.
        product = None if self.is_opt else saved.take("product")
        of_product = layers.linear_backward(
            layer.down, branch, product, borrowed=branch == gradient
        )
        of_up = self.activate_backward(of_product, saved)
        into_norm = layers.linear_backward(layer.up, of_up, saved.take("normal_mlp"))
        into_norm = self.norm_backward(layer.second_norm, into_norm, saved, "second_")
        recorder.free(saved.take("middle"))
        residual = layers.activation_gradient(self.hidden)
        recorder.free(gradient, into_norm)
        branch = layers.dropout_backward(residual, self.hidden, saved.take("first_mask"))
        mixed = layers.linear_backward(layer.output, branch, borrowed=branch == residual)
        query, key, value = attention_backward(layers, self.attention, mixed, saved)
        into_norm = self.project_backward(layer, (query, key, value), saved)
        into_norm = self.norm_backward(layer.first_norm, into_norm, saved, "first_")
        recorder.free(saved.take("stream"))
        result = layers.activation_gradient(self.hidden)
        recorder.free(residual, into_norm)
        return result

    def project_backward(self, layer: Layer, gradients: tuple[int, int, int], saved: Saved) -> int:
        """Record the projections' backward: GPT-2 joins the three gradients first."""
        layers, recorder = self.layers, self.recorder
        query, key, value = gradients
        if not self.is_opt:
            joined = layers.activation_gradient(3 * self.attention.width)
            recorder.free(query, key, value)
            return layers.linear_backward(layer.projections[0], joined, saved.take("normal_in"))
        of_key, of_value, of_query = layer.projections
        total = layers.linear_backward(of_value, value)
        total = layers.linear_backward(of_key, key, added_to=total)
        scaled = layers.activation_gradient(self.attention.width)
        recorder.free(query)
        return layers.linear_backward(of_query, scaled, saved.take("normal_in"), added_to=total)

    def activate_backward(self, gradient: int, saved: Saved) -> int:
        """Record the activation's backward."""
        layers, recorder = self.layers, self.recorder
        if self.is_opt:
            result = layers.activation_gradient(self.mlp)
            recorder.free(gradient, saved.take("product"))
            return result
        of_tanh = layers.activation_gradient(self.mlp)
        of_half = layers.activation_gradient(self.mlp)
        recorder.free(gradient, saved.take("half"), saved.take("plus_one"))
        of_inner = layers.activation_gradient(self.mlp)
        recorder.free(of_tanh, saved.take("tanh"))
        of_sum = layers.activation_gradient(self.mlp)
        recorder.free(of_inner)
        of_cube, square, tripled = (layers.activation_gradient(self.mlp) for _ in range(3))
        by_cube = layers.activation_gradient(self.mlp)
        recorder.free(square, tripled, of_cube, saved.take("up"))
        total = layers.activation_gradient(self.mlp)
        recorder.free(of_sum, by_cube)
        by_half = layers.activation_gradient(self.mlp)
        recorder.free(of_half)
        result = layers.activation_gradient(self.mlp)
        recorder.free(total, by_half)
        return result


def _named(name: str, slot: int | None) -> dict[str, int]:
    return {} if slot is None else {name: slot}
