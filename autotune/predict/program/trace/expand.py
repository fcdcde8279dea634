"""A program of many layers from the trace of a few: every kind of layer once or twice.

A layer's events depend on its own kind, on its neighbours' kinds, and on being the first or the
last of a kind, where tensors that all of a kind share begin and end. Layers that agree in all of
this are repeated from one traced layer; whatever does not repeat exactly is not expanded.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from autotune.predict.program.events import (
    ALLOCATE,
    ENTER,
    FETCH,
    FREE,
    GRADIENT,
    RELEASE,
    Event,
    Parameter,
    Program,
)

_LAYER = "layer "
_REPEATS = 2
"""Of layers that are alike, so that their traces can be compared."""


class NotExpandableError(Exception):
    """The traced layers do not repeat; the model has to be traced whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which layers of a model to trace, and which of them every layer is like."""

    chosen: tuple[int, ...]
    """Indices of the layers that are traced."""
    same_as: tuple[int, ...]
    """For every layer of the model, the position in `chosen` of the one that it repeats."""
    alike: tuple[int, ...]
    """For every position in `chosen`, the first position whose events must be the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedProgram:
    """A traced program with the events at which its layers begin."""

    program: Program
    forward: tuple[int, ...]
    """Indices of the events at which the layers' forward begins, and at which the last ends."""
    backward: tuple[int, ...]
    """The same for backward, last layer first."""


def choose_layers(kinds: Sequence[Hashable]) -> Choice:
    """Choose a short sequence of layers in which every layer of the model has one of its like.

    Example:
        >>> choose_layers("abbbbbbbb").chosen
        (0, 1, 6, 7, 8)
    """
    last = len(kinds) - 1
    first_of: dict[Hashable, int] = {}
    last_of: dict[Hashable, int] = {}
    for index, kind in enumerate(kinds):
        first_of.setdefault(kind, index)
        last_of[kind] = index
    contexts = [
        (
            kinds[index - 1] if index else None,
            kind,
            kinds[index + 1] if index < last else None,
            (index == 0, index == last, first_of[kind] == index, last_of[kind] == index),
        )
        for index, kind in enumerate(kinds)
    ]
    chosen = _shortened(kinds, contexts)
    position = {contexts[index]: place for place, index in enumerate(chosen)}
    first: dict[Hashable, int] = {}
    for place, index in enumerate(chosen):
        first.setdefault(contexts[index], place)
    return Choice(
        chosen=tuple(chosen),
        same_as=tuple(position[context] for context in contexts),
        alike=tuple(first[contexts[index]] for index in chosen),
    )


def _shortened(kinds: Sequence[Hashable], contexts: Sequence[Hashable]) -> list[int]:
    """Cut out runs of layers whose ends join up, as long as every context is left often enough."""
    left = list(range(len(kinds)))
    count = Counter(contexts)
    length = 1
    while length < len(left):
        start = 1
        while start + length < len(left):
            before, after = left[start - 1], left[start + length]
            run = left[start : start + length]
            joins = kinds[run[0]] == kinds[after] and kinds[run[-1]] == kinds[before]
            taken = Counter(contexts[index] for index in run)
            if joins and all(count[key] - taken[key] >= _REPEATS for key in taken):
                count -= taken
                del left[start : start + length]
            else:
                start += 1
        length += 1
    return left


def expand(
    marked: MarkedProgram,
    choice: Choice,
    *,
    places: Sequence[tuple[int | None, str]],
    parameters: Sequence[Parameter],
    names: Mapping[tuple[int | None, str], int],
) -> Program:
    """Return the program of the whole model.

    Args:
        marked: the trace of the chosen layers.
        choice: which they are.
        places: of the traced parameters: the position of their layer, None outside the layers, and
            their name there.
        parameters: of the whole model.
        names: index of a parameter in `parameters`, by the index of its layer and its name there.

    Raises:
        NotExpandableError: the layers do not repeat.
    """
    relative = _Relative(marked, choice, places)
    return _Expansion(relative, choice, parameters, names).run()


Part = tuple[str, int | None]
"""A stretch of a program: its role, and its layer if it is one layer's."""
_ROLES = ("before", "forward", "between", "backward", "after")


@dataclass(frozen=True, slots=True)
class _Slot:
    """A tensor as seen from the stretch that uses it."""

    role: str
    shift: int | None
    """Layers between the one that made it and the one that uses it; None outside the layers."""
    position: int | None
    """The traced layer that made it, where what uses it lies outside the layers."""
    number: int
    """Among the tensors that its stretch makes."""
    num_bytes: int


class _Relative:
    """A traced program in stretches, each with references relative to its layer."""

    def __init__(
        self, marked: MarkedProgram, choice: Choice, places: Sequence[tuple[int | None, str]]
    ) -> None:
        self.places = places
        self.events = marked.program.events
        num_layers = len(choice.chosen)
        positions = range(num_layers)
        starts = [0, *marked.forward, *marked.backward, len(self.events)]
        self.parts: list[Part] = [
            ("before", None),
            *(("forward", position) for position in positions),
            ("between", None),
            *(("backward", position) for position in reversed(positions)),
            ("after", None),
        ]
        if len(starts) != len(self.parts) + 1 or any(a > b for a, b in pairwise(starts)):
            raise NotExpandableError("the layers do not follow one another")
        self._starts = starts[:-1]
        self._home = self._homes()
        self.alike = choice.alike
        self._ended_outside: dict[tuple[Part, str, int], set[int]] = {}
        """Positions of the layers whose tensors end outside the layers: by stretch, and tensor."""
        for index, (kind, slot, _, _) in enumerate(self.events):
            part = self.parts[bisect_right(self._starts, index) - 1]
            if kind == FREE and part[1] is None:
                (role, position), number, _ = self._home[slot]
                if position is not None:
                    self._ended_outside.setdefault((part, role, number), set()).add(position)
        self.stretches = {
            part: [self._event(event, part) for event in self.events[start:end]]
            for part, (start, end) in zip(self.parts, pairwise(starts), strict=True)
        }
        for role in ("forward", "backward"):
            for position, other in enumerate(choice.alike):
                if self.stretches[role, position] != self.stretches[role, other]:
                    raise NotExpandableError(f"{role} of two layers that look alike differs")

    def _homes(self) -> dict[int, tuple[Part, int, int]]:
        """Return where each slot was made: the stretch, its number there, and its bytes."""
        found: dict[int, tuple[Part, int, int]] = {}
        made: Counter[Part] = Counter()
        for index, (kind, slot, num_bytes, _) in enumerate(self.events):
            if kind == ALLOCATE:
                part = self.parts[bisect_right(self._starts, index) - 1]
                found[slot] = part, made[part], num_bytes
                made[part] += 1
        return found

    def _event(self, event: Event, part: Part) -> Event:
        """Return an event with slots, parameters and layers as seen from its stretch."""
        kind, first, second, third = event
        if kind == ALLOCATE:
            return kind, None, second, third
        if kind == FREE:
            return kind, self._slot(first, part), second, third
        if kind == GRADIENT:
            return kind, self._parameter(first, part), self._slot(second, part), third
        if kind in (FETCH, RELEASE):
            return kind, tuple(self._parameter(k, part) for k in first), second, third
        if kind == ENTER and second.startswith(_LAYER):
            layer = int(second.removeprefix(_LAYER).split()[0])
            return kind, first, self._shift(layer, part), third
        return event

    def _slot(self, slot: int, part: Part) -> _Slot:
        (role, position), number, num_bytes = self._home[slot]
        if position is None:
            return _Slot(role, None, None, number, num_bytes)
        if part[1] is None and self._all_alike_end((role, position), number, part):
            return _Slot(role, None, position, number, num_bytes)
        return _Slot(role, self._shift(position, part), None, number, num_bytes)

    def _all_alike_end(self, made_in: Part, number: int, part: Part) -> bool:
        """Whether the same tensor of every layer alike ends in a stretch outside the layers.

        If not, it is the tensor of one layer: the nearest.
        """
        role, position = made_in
        alike = {p for p, other in enumerate(self.alike) if other == self.alike[position or 0]}
        return alike <= self._ended_outside.get((part, role, number), set())

    def _parameter(self, parameter: int, part: Part) -> tuple[int | None, str]:
        position, name = self.places[parameter]
        return (None if position is None else self._shift(position, part)), name

    def _shift(self, position: int, part: Part) -> int:
        """Return how far a layer lies from the stretch's own; from a side, from the nearest."""
        own = part[1]
        if own is None:
            own = 0 if part[0] in ("before", "after") else len(self.parts) // 2 - 2
        shift = position - own
        if abs(shift) > 1:
            raise NotExpandableError("a layer uses what lies more than one layer away")
        return shift


@dataclass(slots=True)
class _Expansion:
    """Writes the stretches of the whole model down, one after the other."""

    relative: _Relative
    choice: Choice
    parameters: Sequence[Parameter]
    names: Mapping[tuple[int | None, str], int]
    events: list[Event] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Bytes of each slot; -1 once it is freed or handed over."""
    made: dict[Part, list[int]] = field(default_factory=dict)
    """Slots of each stretch of the whole model."""

    def run(self) -> Program:
        """Return the whole program."""
        layers = range(len(self.choice.same_as))
        self._write(("before", None), ("before", None))
        for layer in layers:
            self._write(("forward", layer), ("forward", self.choice.same_as[layer]))
        self._write(("between", None), ("between", None))
        for layer in reversed(layers):
            self._write(("backward", layer), ("backward", self.choice.same_as[layer]))
        self._write(("after", None), ("after", None))
        return Program(tuple(self.parameters), tuple(self.events), len(self.sizes))

    def _write(self, part: Part, like: Part) -> None:
        slots = self.made.setdefault(part, [])
        last, own = len(self.choice.same_as) - 1, self._own(part)
        for kind, first, second, third in self.relative.stretches[like]:
            if kind == ALLOCATE:
                slots.append(len(self.sizes))
                self.events.append((kind, len(self.sizes), second, third))
                self.sizes.append(second)
            elif kind == FREE:
                self.events += ((kind, slot, second, third) for slot in self._ended(first, part))
            elif kind == GRADIENT:
                (slot,) = self._ended(second, part)
                self.events.append((kind, self._parameter(first, own), slot, third))
            elif kind in (FETCH, RELEASE):
                own_parameters = tuple(self._parameter(place, own) for place in first)
                self.events.append((kind, own_parameters, second, third))
            elif kind == ENTER and isinstance(second, int):
                detail = f"{_LAYER}{own + second} of {last + 1}"
                self.events.append((kind, first, detail, third))
            else:
                self.events.append((kind, first, second, third))

    def _own(self, part: Part) -> int:
        """Return the layer that a stretch belongs to, or the nearest."""
        if part[1] is not None:
            return part[1]
        return 0 if part[0] in ("before", "after") else len(self.choice.same_as) - 1

    def _ended(self, slot: Any, part: Part) -> list[int]:
        """Return the slots that end where the traced one does: one, or that of every such layer."""
        layers: list[int | None]
        if slot.position is not None:
            same_as = self.choice.same_as
            layers = [k for k, place in enumerate(same_as) if place == slot.position]
        else:
            layers = [None if slot.shift is None else self._own(part) + slot.shift]
        found = []
        for layer in layers:
            made = self.made.get((slot.role, layer), [])
            number = made[slot.number] if slot.number < len(made) else -1
            if number < 0 or self.sizes[number] != slot.num_bytes:
                raise NotExpandableError("a tensor of a repeated layer is not where it was traced")
            self.sizes[number] = -1
            found.append(number)
        return found

    def _parameter(self, place: tuple[int | None, str], own: int) -> int:
        shift, name = place
        index = self.names.get((None if shift is None else own + shift, name))
        if index is None:
            raise NotExpandableError(f"a repeated layer has no parameter {name}")
        return index
