"""A program in a few numbers: what one layer keeps, and how much more its backward needs.

Layers of hand-written programs are equal, so two programs of two and three layers determine the
need of any depth; a traced program is read as a whole, since its layers may differ. The closed form
adds these numbers up; they are read from the same recorded events as the replay's, so that no
formula is written twice.
"""

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache

from autotune.job.model_shape import ModelShape
from autotune.predict.program.cache_keys import Remembered, by_layout, by_model, by_program
from autotune.predict.program.events import ALLOCATE, ENTER, FREE, Parameter, Program
from autotune.predict.program.families import is_traced, program
from autotune.predict.program.items import Item, Part
from autotune.predict.training_job import Training

_ACTIVATION_ITEMS = frozenset(
    {int(Item.ACTIVATIONS), int(Item.ACTIVATION_GRADIENTS), int(Item.LOGITS)}
)


_IN_A_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block|layer)\.\d+\.")
"""The names of layers in models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Bytes of activations and their gradients in one micro step."""

    kept_per_layer: int
    """What forward keeps of one layer: its input only, with checkpointing."""
    kept_outside: int
    """What it keeps outside the layers when the loss starts."""
    loss_peak: int
    """Above all that is kept, at the loss's highest point."""
    head_peak: int
    """The same in the head's backward."""
    layer_peak: int
    """In one layer's backward, above what the layers below it keep."""
    forward_peak: int
    """In one layer's forward, above what the layers below it keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """Parameters of a model in a few numbers, in elements."""

    parameters: tuple[Parameter, ...]
    head: int
    """Of the module onto the vocabulary."""
    embedding: int
    layer: int
    """Of one layer."""
    largest_in_layer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A model's parameters over the ranks, in elements of one rank."""

    total: int
    """Before sharding, without other ranks' experts."""
    trained: int
    largest: int
    """The largest trainable parameter."""
    shards: tuple[int, ...]
    """Of each parameter, padded separately as at stage 3."""
    trainable: tuple[int, ...]
    """Indices of the trainable parameters."""
    partition: int
    """Trainable elements of one rank after sharding."""


def summarise(training: Training) -> Summary:
    """Return the numbers of a job's program; equal programs are summarised once."""
    return _summarise(by_program(training))


def weigh(training: Training) -> Weighted:
    """Return the model's parameters; equal models are laid out once."""
    return _weigh(by_model(training))


def lay_out(training: Training) -> Layout:
    """Return the parameters over the ranks; equal layouts are computed once."""
    return _lay_out(by_layout(training))


@lru_cache(maxsize=4096)
def _summarise(key: Remembered) -> Summary:
    if is_traced(key.training):
        recorded = _live_bytes(program(key.training))
        return _summary_of(recorded, key.training.model.num_hidden_layers)
    two, three = (_live_bytes(program(_with_layers(key.training, n))) for n in (2, 3))
    per_layer = three.kept - two.kept
    return Summary(
        kept_per_layer=per_layer,
        kept_outside=two.kept - 2 * per_layer,
        loss_peak=two.loss_peak - two.kept,
        head_peak=two.head_peak - two.kept,
        layer_peak=three.layer_peak - 2 * per_layer,
        forward_peak=two.forward_peak - per_layer,
    )


@lru_cache(maxsize=256)
def _weigh(key: Remembered) -> Weighted:
    training = key.training
    # A trace of any micro batch has them; another one would only cost its seconds.
    parameters = program(training if is_traced(training) else _tiny(training)).parameters
    layers = training.model.num_hidden_layers
    inside = [p.num_elements for p in parameters if _IN_A_LAYER.search(p.name)]
    return Weighted(
        parameters=parameters,
        head=training.model.vocab_size * training.model.hidden_size,
        embedding=parameters[0].num_elements,
        layer=sum(inside) // layers,
        largest_in_layer=max(inside),
    )


@lru_cache(maxsize=1024)
def _lay_out(key: Remembered) -> Layout:
    training = key.training
    parameters = weigh(training).parameters
    experts = training.expert_parallel_size
    local = [p.num_elements // experts if p.expert else p.num_elements for p in parameters]
    ranks = training.world_size
    shards = tuple(
        -(-n // (max(ranks // experts, 1) if p.expert else ranks))
        for n, p in zip(local, parameters, strict=True)
    )
    trainable = tuple(k for k, p in enumerate(parameters) if p.trainable)
    return Layout(
        total=sum(local),
        trained=sum(local[k] for k in trainable),
        largest=max(local[k] for k in trainable),
        shards=shards,
        trainable=trainable,
        partition=sum(shards[k] for k in trainable),
    )


def _with_layers(training: Training, num_layers: int) -> Training:
    shape: ModelShape = replace(training.model, num_hidden_layers=num_layers)
    return replace(training, model=shape)


def _tiny(training: Training) -> Training:
    return replace(training, micro_batch_size=1, seq_len=1)


@dataclass(slots=True)
class _LiveBytes:
    kept: int = 0
    loss_peak: int = 0
    head_peak: int = 0
    layer_peak: int = 0
    forward_peak: int = 0
    starts: list[int] = field(default_factory=list)
    """What is alive where each layer's forward starts."""

    @property
    def kept_per_layer(self) -> int:
        """On average: layers may differ. The first may hold the end of an embedding; left out."""
        if len(self.starts) < 2:
            return self.kept - sum(self.starts)
        first = min(1, len(self.starts) - 2)
        return (self.starts[-1] - self.starts[first]) // (len(self.starts) - 1 - first)


def _summary_of(whole: _LiveBytes, num_layers: int) -> Summary:
    """Read the numbers from a whole program, whose layers may be of several kinds."""
    below = (num_layers - 1) * whole.kept_per_layer
    return Summary(
        kept_per_layer=whole.kept_per_layer,
        kept_outside=whole.kept - num_layers * whole.kept_per_layer,
        loss_peak=whole.loss_peak - whole.kept,
        head_peak=whole.head_peak - whole.kept,
        layer_peak=whole.layer_peak - below,
        forward_peak=whole.forward_peak - below,
    )


def _live_bytes(recorded: Program) -> _LiveBytes:
    """Follow live activation bytes; the last layer's backward is the first after the head."""
    found, sizes, live = _LiveBytes(), [0] * recorded.num_slots, 0
    place, layer = "forward_peak", ""
    for kind, first, second, third in recorded.events:
        if kind == ALLOCATE and third in _ACTIVATION_ITEMS:
            sizes[first] = second
            live += second
            setattr(found, place, max(getattr(found, place), live))
        elif kind == FREE:
            live -= sizes[first]
            sizes[first] = 0
        elif kind == ENTER:
            if first is Part.FORWARD and second.startswith("layer") and second != layer:
                layer = second
                found.starts.append(live)
            if first is Part.LOSS and place == "forward_peak":
                found.kept = live
            if first is not Part.FORWARD:
                place = "loss_peak" if first is Part.LOSS else "layer_peak"
            if second == "head":
                place = "head_peak"
    return found
