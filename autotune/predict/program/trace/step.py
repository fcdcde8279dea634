"""One traced forward and backward of a Hugging Face model, as a program."""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import masking_utils

from autotune.job.model_shape import ModelShape
from autotune.predict.program.events import Parameter, Program, Recorder
from autotune.predict.program.experts import ExpertSizes, expert_sizes
from autotune.predict.program.items import Item, Part
from autotune.predict.program.trace.build import build_model
from autotune.predict.program.trace.expand import MarkedProgram, expand
from autotune.predict.program.trace.fused_attention import fused_attention
from autotune.predict.program.trace.layer_marks import LayerMarks
from autotune.predict.program.trace.layers import shorten, split_name
from autotune.predict.program.trace.storages import StorageTracer, handle
from autotune.predict.training_job import Training

_LOGGER = logging.getLogger(__name__)
_LAYER = re.compile(r"\.(?:layers|h|blocks|block|layer)\.(\d+)$")
_EXPERTS = re.compile(r"\.experts\.[^.]+$")
_LARGE_SHARE = 4
"""Tensors of the loss of at least a quarter of the logits are counted as logits."""


def trace_step(training: Training) -> Program:
    """Trace one micro step; raises whatever the model's own code raises."""
    with _fake_tensors():
        program = _repeated(training)
        return program or _Step(training, build_model(training)).run()


def trace_repeated(training: Training) -> Program | None:
    """Trace a few layers and repeat them; None where that would not give the whole model's step.

    Raises whatever building the model raises.
    """
    with _fake_tensors():
        return _repeated(training)


@contextmanager
def _fake_tensors() -> Iterator[None]:
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        warnings.catch_warnings(),
        _whole_sequences(),
        fused_attention(),
    ):
        warnings.simplefilter("ignore")
        yield


def _repeated(training: Training) -> Program | None:
    model = build_model(training)
    parameters = list_parameters(training.model, model)
    shortened = shorten(model, training.model.num_hidden_layers)
    if shortened is None:
        return None
    try:
        step = _Step(training, model, layers=model.get_submodule(shortened.path))
        return expand(
            step.run_marked(),
            shortened.choice,
            places=[split_name(name, shortened.path) for name, _ in step.named],
            parameters=parameters,
            names={split_name(p.name, shortened.path): k for k, p in enumerate(parameters)},
        )
    except Exception as error:  # noqa: BLE001  whatever the code of a model that lacks layers raises
        _LOGGER.info("%s: traced whole: %s", training.model.model_type, error)
        return None


@contextmanager
def _whole_sequences() -> Iterator[None]:
    """Tell transformers that no two sequences share a row.

    It reads that off the positions, which fake tensors do not have, and then builds a mask that no
    run with real data builds.
    """
    name = "find_packed_sequence_indices"
    real = getattr(masking_utils, name, None)
    setattr(masking_utils, name, lambda *_, **__: None)
    try:
        yield
    finally:
        setattr(masking_utils, name, real)


def list_parameters(shape: ModelShape, model: nn.Module) -> list[Parameter]:
    """Return a model's parameters as a program has them."""
    sizes = expert_sizes(shape)
    return [
        Parameter(
            name,
            tensor.numel(),
            trainable=tensor.requires_grad,
            expert=_is_expert(name, tensor, sizes),
        )
        for name, tensor in model.named_parameters()
    ]


def _is_expert(name: str, parameter: torch.Tensor, sizes: ExpertSizes | None) -> bool:
    """Whether a tensor holds the same matrix of every routed expert; shared ones see all tokens."""
    stacked = sizes is not None and parameter.shape[:1] == (sizes.num_experts,)
    return stacked and _EXPERTS.search(name) is not None


class _Step:
    """Hooks a model up, runs it once, and writes the events down."""

    def __init__(
        self, training: Training, model: nn.Module, *, layers: nn.Module | None = None
    ) -> None:
        self.training = training
        self.model = model
        self.named = list(model.named_parameters())
        self.recorder = Recorder(list_parameters(training.model, model))
        self.marks = LayerMarks(self.recorder, () if layers is None else tuple(layers.children()))
        self.index = {handle(p): k for k, (_, p) in enumerate(self.named)}
        self.module_of = self._modules()
        self.layer_of = self._layers()
        self.num_layers = 1 + max(self.layer_of.values(), default=0)
        self.part = Part.FORWARD
        self.runs_again = False
        # Modules in backward, by their parameters: which of these have had no gradient yet.
        self.open: dict[tuple[int, ...], set[int]] = {}
        self.logits_bytes = training.element_bytes * training.tokens * training.model.vocab_size
        self.tracer = StorageTracer(self.recorder, item_of=self._item_of, before=self._before)

    def run(self) -> Program:
        """Trace forward and backward."""
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            self.tracer.ignore(tensor)
        shape = self.training.micro_batch_size, self.training.seq_len
        tokens = torch.zeros(shape, dtype=torch.long)
        self.tracer.ignore(tokens)
        self._hook()
        self.marks.hook(lambda: self.runs_again)
        self.recorder.enter(Part.FORWARD, "embedding")
        with self.tracer:
            loss = self.model(input_ids=tokens, labels=tokens, use_cache=False).loss
            self.tracer.in_backward = True
            self._enter(Part.LOSS, "backward")
            loss.backward()
            del loss
        return self.recorder.program()

    def run_marked(self) -> MarkedProgram:
        """Trace forward and backward, with the events at which layers begin.

        Raises:
            NotExpandableError: the layers do not run one after the other.
        """
        return self.marks.marked(self.run())

    # ------------------------------------------------------------------ the model's structure
    def _modules(self) -> dict[int, tuple[int, ...]]:
        """Return, for each parameter, all parameters of the module that owns it."""
        found: dict[int, tuple[int, ...]] = {}
        for module in self.model.modules():
            own = tuple(self.index[handle(p)] for p in module.parameters(recurse=False))
            for parameter in own:
                found.setdefault(parameter, own)
        return found

    def _layers(self) -> dict[int, int]:
        """Return the layer that each parameter lies in."""
        found: dict[int, int] = {}
        for name, module in self.model.named_modules():
            match = _LAYER.search(name)
            if match:
                for parameter in module.parameters():
                    found.setdefault(self.index[handle(parameter)], int(match[1]))
        return found

    def _hook(self) -> None:
        if self.training.activation_checkpointing:
            self.model.gradient_checkpointing_enable(  # type: ignore[operator]
                gradient_checkpointing_kwargs={
                    "use_reentrant": False,
                    "context_fn": lambda: (nullcontext(), self._running_again()),
                }
            )
        head = self.model.get_output_embeddings()  # type: ignore[operator]
        for module in self.model.modules():
            if module is self.model or any(True for _ in module.parameters(recurse=False)):
                module.register_forward_pre_hook(self._before_module)
                module.register_forward_hook(self._after_module)
        if head is not None:
            head.register_forward_pre_hook(lambda *_: self._enter(Part.LOSS, "forward"))
        # Some routers have a bias that no gradient trains.
        for parameter in (p for _, p in self.named if p.requires_grad):
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                self._gradient
            )

    # ------------------------------------------------------------------ what happens
    @contextmanager
    def _running_again(self) -> Iterator[None]:
        """A checkpointed layer runs again, until all that its backward needs is there."""
        self.marks.note_backward()
        self.runs_again = True
        try:
            yield
        finally:
            self.runs_again = False

    def _before_module(self, module: nn.Module, _: Any) -> None:
        own = self._own(module)
        if own and own[0] in self.layer_of:
            part = Part.BACKWARD if self.runs_again else Part.FORWARD
            self._enter(part, self._place(own[0]))
        self.recorder.fetch(*own)

    def _after_module(self, module: nn.Module, _: Any, __: Any) -> None:
        self.recorder.release(*self._own(module))

    def _own(self, module: nn.Module) -> tuple[int, ...]:
        return tuple(self.index[handle(p)] for p in module.parameters(recurse=False))

    def _before(self, storages: set[int]) -> None:
        """In backward, a module starts when its first parameter is read."""
        self.marks.note_reads(self.tracer.made_at(storages))
        if self.tracer.in_backward:
            self.marks.note_backward()
        if not self._in_backward():
            return
        for parameter in sorted(self.index[s] for s in storages if s in self.index):
            self._start_backward(parameter)

    def _start_backward(self, parameter: int) -> None:
        own = self.module_of[parameter]
        if own in self.open:
            return
        trained = {k for k in own if self.module_of[k] == own and self.named[k][1].requires_grad}
        if not trained:
            return
        self.open[own] = trained
        place = self._place(parameter)
        if self.part is not Part.BACKWARD or place != "head":
            self._enter(Part.BACKWARD, place)
        self.recorder.fetch(*own)

    def _gradient(self, parameter: torch.Tensor) -> None:
        """Autograd has accumulated: the engine takes the gradient from here."""
        index = self.index[handle(parameter)]
        self._start_backward(index)
        gradient = parameter.grad
        assert gradient is not None
        slot = self.tracer.hand_over(gradient)
        self.tracer.change_item(slot, Item.GRADIENTS)
        if self.recorder.parameters[index].expert:
            # The trace holds all experts; a rank has those of its own.
            local = -(-gradient.numel() // self.training.expert_parallel_size)
            self.tracer.change_size(slot, local * gradient.element_size())
        del gradient
        parameter.grad = None
        self.recorder.gradient(index, slot)
        self._end_backward(index)

    def _end_backward(self, parameter: int) -> None:
        """A module ends with the last of its gradients, in whichever order they come.

        DeepSpeed releases it when its input's gradient leaves it (`PostBackwardFunctionModule` in
        parameter_offload.py); autograd accumulates the gradients of its parameters before that.
        """
        own = self.module_of[parameter]
        left = self.open[own]
        left.discard(parameter)
        if not left:
            del self.open[own]
            self.recorder.release(*own)

    def _place(self, parameter: int) -> str:
        layer = self.layer_of.get(parameter)
        if layer is not None:
            return f"layer {layer} of {self.num_layers}"
        return "embedding" if parameter == 0 and self.part is Part.BACKWARD else "head"

    def _enter(self, part: Part, detail: str) -> None:
        self.part = part
        self.recorder.enter(part, detail)

    def _item_of(self, num_bytes: int) -> Item:
        if self.part is Part.LOSS and _LARGE_SHARE * num_bytes >= self.logits_bytes:
            return Item.LOGITS
        return Item.ACTIVATION_GRADIENTS if self._in_backward() else Item.ACTIVATIONS

    def _in_backward(self) -> bool:
        """Whether gradients are computed; a checkpointed layer that runs again computes none."""
        return self.tracer.in_backward and not self.runs_again
