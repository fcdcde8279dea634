"""Reading the values that a searched key may take."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from autotune.ds_config.fields.table import Field
from autotune.space.parameter import Choices, FloatRange, IntRange, Kind
from autotune.space.searchable import value_fault

Say: TypeAlias = Callable[[str], None]
"""Takes down one fault of the key at hand."""

_RANGE = ("low", "high", "log", "step")
_NUMBER = re.compile(r"[+-]?\d[\d_]*(\.\d*)?[eE][+-]?\d+")
"""What a reader means as a number and YAML 1.1 takes for text: `5e8`."""


def read_kind(attributes: Mapping[str, Any], known: Field | None, say: Say) -> Kind | None:
    """Read the values of a key; None if they are wrong, with each fault said.

    Args:
        attributes: what the file says about the key.
        known: the key's field; None for an unknown key, whose values are checked as far as they
            can be.
        say: takes the faults.
    """
    ranged = [name for name in _RANGE if name in attributes]
    if "choices" in attributes:
        if ranged:
            say(f"has both choices and {', '.join(ranged)}; keep one form")
            return None
        return _read_choices(attributes["choices"], known, say)
    missing = [name for name in ("low", "high") if name not in attributes]
    if missing:
        say(f"lacks {' and '.join(missing)}; give `choices:`, or `low:` and `high:`")
        return None
    if known is not None and (known.choices or known.type in ("bool", "str")):
        say(f"takes {_allowed(known)}, not a range; give `choices:`")
        return None
    if not all([_ends_are_good(attributes, known, say), _steps_are_good(attributes, say)]):
        return None
    return _read_range(attributes, known, say)


def read_multiple_of(attributes: Mapping[str, Any], kind: Kind | None, say: Say) -> int:
    """Read what sizes are rounded to a multiple of; the ends of the range must be one."""
    multiple_of = number(attributes.get("multiple_of", 1))
    if not _is_int(multiple_of) or multiple_of < 1:
        say(f"multiple_of={written(multiple_of)}: must be a whole number, at least 1")
        return 1
    if kind is not None and multiple_of > 1:
        for value in kind.values if isinstance(kind, Choices) else (kind.low, kind.high):
            if isinstance(value, bool | str):
                say(f"multiple_of={multiple_of}: {written(value)} is not a size; drop it")
            elif value % multiple_of:
                near = round(value / multiple_of) * multiple_of
                say(f"{value}: not a multiple of {multiple_of}; nearest: {near}")
    return int(multiple_of)


def number(value: Any) -> Any:
    """Return the number that a reader means by `5e8`; everything else stays as it is."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        meant = float(value)
        return int(meant) if meant.is_integer() else meant
    return value


def written(value: object) -> str:
    """Return a value as YAML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


def described(kind: Kind) -> str:
    """Return the values of a kind in words."""
    if isinstance(kind, Choices):
        return ", ".join(map(written, kind.values))
    return f"{kind.low} to {kind.high}"


def _read_choices(choices: Any, known: Field | None, say: Say) -> Choices | None:
    if not isinstance(choices, list) or not choices:
        say(f"choices={written(choices)}: must be a list with at least one value")
        return None
    values = tuple(number(value) for value in choices)
    good = True
    for index, value in enumerate(values):
        fault = value_fault(known or Field(key="", type="any"), value)
        if fault is None and Choices(values=values[:index]).holds(value):
            fault = "given twice; keep one"
        if fault is not None:
            say(f"choices: {written(value)}: {fault}")
            good = False
    return Choices(values=values) if good else None


def _ends_are_good(attributes: Mapping[str, Any], known: Field | None, say: Say) -> bool:
    if known is None or known.type == "any":
        known = Field(key="", type="float")
    good = True
    for name in ("low", "high"):
        value = number(attributes[name])
        fault = value_fault(known, value)
        if fault is None and not math.isfinite(value):
            fault = "must be a finite number"
        if fault is not None:
            say(f"{name}={written(value)}: {fault}")
            good = False
    return good


def _steps_are_good(attributes: Mapping[str, Any], say: Say) -> bool:
    log, step = attributes.get("log", False), number(attributes.get("step", 1))
    if not isinstance(log, bool):
        say(f"log={written(log)}: must be true or false")
        return False
    if not _is_int(step) or step < 1:
        say(f"step={written(step)}: must be a whole number, at least 1")
        return False
    if log and step != 1:
        say(f"step={step}: cannot be combined with log; use multiple_of")
        return False
    return True


def _read_range(
    attributes: Mapping[str, Any], known: Field | None, say: Say
) -> IntRange | FloatRange | None:
    low, high = number(attributes["low"]), number(attributes["high"])
    log, step = attributes.get("log", False), number(attributes.get("step", 1))
    faults = []
    if low > high:
        faults.append(f"low={low} exceeds high={high}; swap them")
    if log and low <= 0:
        faults.append(f"low={low}: must be more than 0 with log; raise it or drop log")
    whole = _is_int(low) and _is_int(high) and (known is None or known.type != "float")
    if not whole and step != 1:
        faults.append(f"step={step}: for whole numbers only; drop it")
    for fault in faults:
        say(fault)
    if faults:
        return None
    if whole:
        return IntRange(low=low, high=high, log=log, step=step)
    return FloatRange(low=float(low), high=float(high), log=log)


def _allowed(known: Field) -> str:
    if known.type == "bool":
        return "true or false"
    return ", ".join(map(str, known.choices)) or "text"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
