"""Where a traced program's layers begin: in forward by hooks, in backward by autograd's order."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

import torch
from torch import nn

from autotune.predict.program.events import Program, Recorder
from autotune.predict.program.trace.expand import MarkedProgram, NotExpandableError

_NO_ORDER = 2**62
"""Above every number in autograd's order; nodes that accumulate gradients have such numbers."""


class LayerMarks:
    """Marks the events at which a model's layers begin.

    Autograd numbers the nodes of its graph as forward makes them, and runs them backwards: the
    number of a node tells the layer that made it.

    Args:
        recorder: of the program.
        layers: in the order in which they run; none of which leaves every method without effect.
    """

    def __init__(self, recorder: Recorder, layers: Sequence[nn.Module]) -> None:
        self.recorder = recorder
        self.layers = layers
        self.forward: list[int] = []
        self.backward: list[int] = []
        self._first_nodes: list[int] = []
        """By layer, and the first after the last layer."""
        self.fault = ""

    def hook(self, runs_again: Callable[[], bool]) -> None:
        """Hook the layers up; a checkpointed layer that runs again is not marked."""

        def begin(layer: int) -> None:
            if runs_again():
                return
            if layer != len(self.forward):
                self.fault = "layers run out of order"
            self.forward.append(len(self.recorder.events))
            self._first_nodes.append(torch._C._autograd._get_sequence_nr())

        for index, layer in enumerate(self.layers):
            layer.register_forward_pre_hook(lambda *_, i=index: begin(i), prepend=True)
        if self.layers:
            last = len(self.layers)
            self.layers[-1].register_forward_hook(lambda *_: begin(last))

    def note_backward(self) -> None:
        """Look at the node that autograd is running, and mark the layers that begin with it."""
        node = torch._C._current_autograd_node() if self.layers else None
        if node is None or node._sequence_nr() >= _NO_ORDER:
            return
        num_layers = len(self.layers)
        layer = bisect_right(self._first_nodes, node._sequence_nr()) - 1
        now = num_layers - len(self.backward)
        if layer > now:
            self.fault = "backward returns to a layer that it has left"
        self.backward += [len(self.recorder.events)] * (now - layer)

    def note_reads(self, made_at: Sequence[int]) -> None:
        """Note what an operation between forward and backward of the layers reads.

        Of the layers it may read what the last one made: more of it means that its own tensors
        grow with the number of layers.

        Args:
            made_at: indices of the events that made what is read.
        """
        if len(self.forward) <= len(self.layers) or self.backward or not self.layers:
            return
        first, last = self.forward[0], self.forward[-2]
        if any(first <= index < last for index in made_at):
            self.fault = "an operation reads what several layers made"

    def marked(self, program: Program) -> MarkedProgram:
        """Return a program with its marks.

        Raises:
            NotExpandableError: the layers did not run one after the other, each once.
        """
        wanted = len(self.layers) + 1
        if not self.fault and not len(self.forward) == len(self.backward) == wanted:
            self.fault = "not every layer runs once"
        if self.fault:
            raise NotExpandableError(self.fault)
        return MarkedProgram(
            program=program, forward=tuple(self.forward), backward=tuple(self.backward)
        )
