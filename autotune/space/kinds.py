"""Reads the values that a searched key may take."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from autotune.ds_config.fields.table import Field
from autotune.space.parameter import Choices, FloatRange, IntRange, Kind
from autotune.space.searchable import value_fault

ReportFault: TypeAlias = Callable[[str], None]
"""Records a fault of the current key."""

_RANGE = ("low", "high", "log", "step")
_NUMBER = re.compile(r"[+-]?\d[\d_]*(\.\d*)?[eE][+-]?\d+")
"""A number that YAML 1.1 reads as text: `5e8`."""


def read_kind(
    attributes: Mapping[str, Any], known: Field | None, report: ReportFault
) -> Kind | None:
    """Read the values of a key; None if they are wrong; each fault is reported.

    Args:
        attributes: the key's attributes in the file.
        known: the key's field; None for an unknown key, whose values are checked as far as
        possible.
        report: called with each fault.
    """
    ranged = [name for name in _RANGE if name in attributes]
    if "choices" in attributes:
        if ranged:
            report(f"has both choices and {', '.join(ranged)}; keep one form")
            return None
        return _read_choices(attributes["choices"], known, report)
    missing = [name for name in ("low", "high") if name not in attributes]
    if missing:
        report(f"lacks {' and '.join(missing)}; give `choices:`, or `low:` and `high:`")
        return None
    if known is not None and (known.choices or known.type in ("bool", "str")):
        report(f"takes {_allowed(known)}, not a range; give `choices:`")
        return None
    if not all([_ends_are_good(attributes, known, report), _steps_are_good(attributes, report)]):
        return None
    return _read_range(attributes, known, report)


def read_multiple_of(attributes: Mapping[str, Any], kind: Kind | None, report: ReportFault) -> int:
    """Read the multiple that sizes are rounded to; the ends of the range must be multiples."""
    multiple_of = number(attributes.get("multiple_of", 1))
    if not _is_int(multiple_of) or multiple_of < 1:
        report(f"multiple_of={written(multiple_of)}: must be a whole number, at least 1")
        return 1
    if kind is not None and multiple_of > 1:
        for value in kind.values if isinstance(kind, Choices) else (kind.low, kind.high):
            if isinstance(value, bool | str):
                report(f"multiple_of={multiple_of}: {written(value)} is not a size; remove it")
            elif value % multiple_of:
                near = round(value / multiple_of) * multiple_of
                report(f"{value}: not a multiple of {multiple_of}; nearest: {near}")
    return int(multiple_of)


def number(value: Any) -> Any:
    """Return `5e8` as a number; any other value is unchanged."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        parsed = float(value)
        return int(parsed) if parsed.is_integer() else parsed
    return value


def written(value: object) -> str:
    """Return a value as YAML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


def described(kind: Kind) -> str:
    """Return the values of a kind as text."""
    if isinstance(kind, Choices):
        return ", ".join(map(written, kind.values))
    return f"{kind.low} to {kind.high}"


def _read_choices(choices: Any, known: Field | None, report: ReportFault) -> Choices | None:
    if not isinstance(choices, list) or not choices:
        report(f"choices={written(choices)}: must be a list with at least one value")
        return None
    values = tuple(number(value) for value in choices)
    good = True
    for index, value in enumerate(values):
        fault = value_fault(known or Field(key="", type="any"), value)
        if fault is None and Choices(values=values[:index]).holds(value):
            fault = "given twice; keep one"
        if fault is not None:
            report(f"choices: {written(value)}: {fault}")
            good = False
    return Choices(values=values) if good else None


def _ends_are_good(attributes: Mapping[str, Any], known: Field | None, report: ReportFault) -> bool:
    if known is None or known.type == "any":
        known = Field(key="", type="float")
    good = True
    for name in ("low", "high"):
        value = number(attributes[name])
        fault = value_fault(known, value)
        if fault is None and not math.isfinite(value):
            fault = "must be a finite number"
        if fault is not None:
            report(f"{name}={written(value)}: {fault}")
            good = False
    return good


def _steps_are_good(attributes: Mapping[str, Any], report: ReportFault) -> bool:
    log, step = attributes.get("log", False), number(attributes.get("step", 1))
    if not isinstance(log, bool):
        report(f"log={written(log)}: must be true or false")
        return False
    if not _is_int(step) or step < 1:
        report(f"step={written(step)}: must be a whole number, at least 1")
        return False
    if log and step != 1:
        report(f"step={step}: cannot be combined with log; use multiple_of")
        return False
    return True


def _read_range(
    attributes: Mapping[str, Any], known: Field | None, report: ReportFault
) -> IntRange | FloatRange | None:
    low, high = number(attributes["low"]), number(attributes["high"])
    log, step = attributes.get("log", False), number(attributes.get("step", 1))
    faults = []
    if low > high:
        faults.append(f"low={low} exceeds high={high}; swap them")
    if log and low <= 0:
        faults.append(f"low={low}: must be more than 0 with log; raise it or remove log")
    whole = _is_int(low) and _is_int(high) and (known is None or known.type != "float")
    if not whole and step != 1:
        faults.append(f"step={step}: for whole numbers only; remove it")
    for fault in faults:
        report(fault)
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
