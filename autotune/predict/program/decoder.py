"""The skeleton that all decoders share: embedding, layers, norm, loss, and back again."""

from abc import ABC, abstractmethod

from autotune.predict.program.attention import AttentionSizes, is_eager
from autotune.predict.program.events import Program, Recorder
from autotune.predict.program.items import Part
from autotune.predict.program.layers import Dense, Layers, Saved, Sizes
from autotune.predict.program.loss import head_and_loss
from autotune.predict.program.parameters import Weights
from autotune.predict.training_job import Training

_DROPOUT_KEYS = {"gpt2": ("attn_pdrop", 0.1), "opt": ("attention_dropout", 0.0)}
"""Where a Hugging Face config keeps attention's dropout, and its default."""


def _attention_dropout(training: Training) -> float:
    key, usual = _DROPOUT_KEYS.get(training.model.model_type, ("attention_dropout", 0.0))
    rate = training.model.hf_config.get(key)
    return usual if rate is None else float(rate)


class Decoder(ABC):
    """Records one micro step of a causal language model.

    Args:
        training: the job.
        weights: its parameters, all registered.
        num_layers: decoder layers.
        head: the module onto the vocabulary.
    """

    def __init__(
        self, training: Training, weights: Weights, *, num_layers: int, head: Dense
    ) -> None:
        shape = training.model
        self.recorder = Recorder(weights.parameters)
        self.layers = Layers(
            self.recorder,
            Sizes(
                tokens=training.tokens,
                element_bytes=training.element_bytes,
                micro_batch_size=training.micro_batch_size,
                seq_len=training.seq_len,
            ),
        )
        self.training = training
        self.shared: list[int] = []
        """What all layers read, such as rotary tables; kept until the end of backward."""
        self.named: list[int] = []
        """What variables of the model's forward hold until it returns."""
        self.first_trained_layer = weights.first_trained_layer
        self.num_layers = num_layers
        self.head = head
        self.hidden = shape.hidden_size
        self.mlp = shape.intermediate_size
        self.attention = AttentionSizes(
            width=shape.attention_width,
            key_value_width=shape.key_value_width,
            num_heads=shape.num_attention_heads,
            eager=is_eager(
                training.attn_implementation,
                element_bytes=training.element_bytes,
                grouped=shape.key_value_width != shape.attention_width,
            ),
            wide_softmax=shape.model_type != "gpt2",
            dropout_rate=_attention_dropout(training),
            softmax_copies=training.precision != "fp16",
        )

    @abstractmethod
    def embed(self) -> int:
        """Record the embeddings; returns the residual stream."""

    @abstractmethod
    def embed_backward(self, gradient: int) -> None:
        """Record the embeddings' gradients."""

    @abstractmethod
    def forward(
        self, index: int, stream: int, *, save: bool, again: bool = False
    ) -> tuple[int | None, Saved]:
        """Record a layer; returns its output and what autograd keeps besides its input.

        `again` is the second run of a checkpointed layer, which ends at the last tensor that
        backward needs, before the last module runs: it has no output.
        """

    @abstractmethod
    def backward(self, index: int, gradient: int, saved: Saved) -> int | None:
        """Record a layer's backward; `gradient`, of its output, ends here.

        Returns the gradient of its input, None where nothing below needs one.
        """

    def enter_backward(self) -> None:  # noqa: B027
        """Record the modules without parameters that a layer's backward reaches first."""

    @abstractmethod
    def last_weights(self, index: int) -> tuple[int, ...]:
        """Return the parameters of the module that a layer's backward reaches first."""

    @abstractmethod
    def final_norm(self) -> tuple[int, Saved]:
        """Record the norm before the head."""

    @abstractmethod
    def final_norm_backward(self, gradient: int, saved: Saved) -> int:
        """Record its backward."""

    holds_embeddings = False
    """Whether a variable (`inputs_embeds`) holds the first layer's input until the last layer
    ends."""
    keeps_stream = False
    """Whether a layer's backward needs the layer's input, as a fused LayerNorm does."""

    def program(self) -> Program:
        """Record the whole micro step."""
        recorder, count = self.recorder, self.num_layers
        checkpointing = self.training.activation_checkpointing
        recorder.enter(Part.FORWARD, "embedding")
        # The model is the first module to start: stage 3 prefetches from here.
        recorder.fetch()
        streams: dict[int, int] = {}
        kept: dict[int, Saved] = {}
        stream = self._layers_forward(streams, kept)
        final, norm_saved = self.final_norm()
        recorder.free(*self.named)
        if not self.keeps_stream:
            recorder.free(stream)
        of_final = head_and_loss(self.layers, self.head, final)
        gradient: int | None = self.final_norm_backward(of_final, norm_saved)
        if self.keeps_stream:
            recorder.free(stream)
        for index in reversed(range(self.first_trained_layer, count)):
            assert gradient is not None
            recorder.enter(Part.BACKWARD, f"layer {index} of {count}")
            if checkpointing:
                # Autograd reaches the layer's last module first, then finds its inputs missing.
                self.enter_backward()
                recorder.fetch(*self.last_weights(index))
                output, kept[index] = self.forward(index, streams[index], save=True, again=True)
                recorder.free(output)
            gradient = self.backward(index, gradient, kept[index])
            if checkpointing:
                recorder.free(streams[index])
        recorder.free(*self.shared)
        if gradient is None or self.first_trained_layer:
            recorder.free(gradient)
            return recorder.program()
        recorder.enter(Part.BACKWARD, "embedding")
        self.embed_backward(gradient)
        return recorder.program()

    def _layers_forward(self, streams: dict[int, int], kept: dict[int, Saved]) -> int:
        """Record embeddings and layers; returns the last one's output.

        Args:
            streams: filled with the layers' inputs that checkpoints hold.
            kept: filled with what autograd keeps of each layer.
        """
        count = self.num_layers
        checkpointing = self.training.activation_checkpointing
        stream = self.embed()
        for index in range(count):
            self.recorder.enter(Part.FORWARD, f"layer {index} of {count}")
            trained = index >= self.first_trained_layer
            output, kept[index] = self.forward(index, stream, save=trained and not checkpointing)
            if trained and checkpointing:
                streams[index] = stream
            elif trained and self.keeps_stream:
                kept[index].slots["stream"] = stream
            elif index == 0 and self.holds_embeddings:
                self.named.append(stream)
            else:
                self.recorder.free(stream)
            assert output is not None
            stream = output
        return stream
