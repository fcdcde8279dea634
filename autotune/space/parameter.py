"""One searched key: the values it may take and the condition under which it acts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeAlias

from autotune.space.proposal import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """A few values."""

    values: tuple[Scalar, ...]

    def holds(self, value: Scalar) -> bool:
        """Whether a value can be drawn; `True` and `1` are different values."""
        return any(value == own and type(value) is type(own) for own in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntRange:
    """Whole numbers from `low` to `high`, both included."""

    low: int
    high: int
    log: bool = False
    """Whether each factor, rather than each difference, is equally likely."""
    step: int = 1
    """Distance of neighbours; always 1 with `log`."""

    def holds(self, value: Scalar) -> bool:
        """Whether a value can be drawn."""
        return (
            isinstance(value, int)
            and not isinstance(value, bool)
            and self.low <= value <= self.high
            and (value - self.low) % self.step == 0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatRange:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    """Whether each factor, rather than each difference, is equally likely."""

    def holds(self, value: Scalar) -> bool:
        """Whether a value can be drawn."""
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and self.low <= value <= self.high
        )


Kind: TypeAlias = Choices | IntRange | FloatRange
_KINDS: Mapping[str, type[Kind]] = {"choices": Choices, "int": IntRange, "float": FloatRange}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A key that a study may change."""

    key: str
    """Dotted ds_config key under its documented name, or `model.*`."""
    kind: Kind
    when: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    """The condition under which it acts: each of these keys has one of its values."""
    multiple_of: int = 1
    """A size must be a multiple of this."""

    def __hash__(self) -> int:
        return hash((self.key, self.kind, self.multiple_of))

    def acts(self, values: Mapping[str, Scalar]) -> bool:
        """Whether the key acts together with other values.

        A condition on a key that has no value does not hold.
        """
        return all(
            key in values and Choices(values=allowed).holds(values[key])
            for key, allowed in self.when.items()
        )

    def snap(self, value: Scalar) -> Scalar:
        """Return the nearest valid multiple.

        A value outside the range is not moved into it.

        Example:
            >>> size = Parameter(key="k", kind=IntRange(low=8, high=64), multiple_of=8)
            >>> size.snap(13)
            16
        """
        if self.multiple_of == 1 or isinstance(value, bool | str):
            return value
        snapped = round(value / self.multiple_of) * self.multiple_of
        return type(value)(snapped)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        kind = next(name for name, kind in _KINDS.items() if isinstance(self.kind, kind))
        values = {f.name: getattr(self.kind, f.name) for f in fields(self.kind)}
        return {
            "key": self.key,
            "kind": kind,
            **{name: list(v) if isinstance(v, tuple) else v for name, v in values.items()},
            "when": {key: list(allowed) for key, allowed in self.when.items()},
            "multiple_of": self.multiple_of,
        }

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild a parameter from `to_json`."""
        own = {"key", "kind", "when", "multiple_of"}
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in mapping.items()
            if name not in own
        }
        return cls(
            key=mapping["key"],
            kind=_KINDS[mapping["kind"]](**values),
            when={key: tuple(allowed) for key, allowed in mapping["when"].items()},
            multiple_of=mapping["multiple_of"],
        )
