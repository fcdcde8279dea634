"""One micro step of a model as a list of events, independent of how ZeRO holds its states.

Written by hand for the families in this package, or traced from any Hugging Face model; the engines
replay both in the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.predict.program.items import Item, Part

ALLOCATE, FREE, FETCH, RELEASE, GRADIENT, WORKSPACE, ENTER = range(7)
"""What an event does, its first of four fields:

ALLOCATE (slot, bytes, item); FREE (slot); FETCH and RELEASE (parameters of a module that starts or
ends); GRADIENT (parameter, slot: autograd has accumulated it); WORKSPACE (0 in forward's thread, 1
in autograd's: cuBLAS needs its workspace); ENTER (part, detail).
"""

Event = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight tensor of the whole model."""

    name: str
    num_elements: int
    trainable: bool = True
    expert: bool = False
    """Divided over the expert-parallel ranks before it is sharded."""


@dataclass(frozen=True, slots=True)
class Program:
    """The events of one micro step: forward, loss and backward."""

    parameters: tuple[Parameter, ...]
    """In the order in which the model registers them, which DeepSpeed's buffers follow."""
    events: tuple[Event, ...]
    num_slots: int


@dataclass(slots=True)
class Recorder:
    """Records a program, event by event."""

    parameters: Sequence[Parameter]
    events: list[Event] = field(default_factory=list)
    num_slots: int = 0

    def allocate(self, num_bytes: int, item: Item) -> int:
        """Return the slot of a new tensor."""
        slot = self.num_slots
        self.num_slots += 1
        self.events.append((ALLOCATE, slot, num_bytes, int(item)))
        return slot

    def free(self, *slots: int | None) -> None:
        """Drop the last reference to tensors; None is skipped."""
        self.events.extend((FREE, slot, 0, 0) for slot in slots if slot is not None)

    def fetch(self, *parameters: int) -> None:
        """A module with these parameters starts; stage 3 gathers them."""
        self.events.append((FETCH, parameters, 0, 0))

    def release(self, *parameters: int) -> None:
        """The module has ended."""
        self.events.append((RELEASE, parameters, 0, 0))

    def workspace(self, thread: int) -> None:
        """A matrix is multiplied, in forward's thread (0) or in autograd's (1)."""
        self.events.append((WORKSPACE, thread, 0, 0))

    def enter(self, part: Part, detail: str = "") -> None:
        """Start another part of the step."""
        self.events.append((ENTER, part, detail, 0))

    def gradient(self, parameter: int, slot: int) -> None:
        """Autograd has accumulated a parameter's gradient; the engine owns it from here on."""
        self.events.append((GRADIENT, parameter, slot, 0))

    def program(self) -> Program:
        """Return what was recorded."""
        return Program(tuple(self.parameters), tuple(self.events), self.num_slots)
