"""Reads a JSON or Hjson text as DeepSpeed or Hugging Face would, and as it was intended.

Source: DeepSpeed 0.19.8, runtime/config.py: `DeepSpeedConfig` (hjson); accelerate 1.15,
utils/deepspeed.py: `HfDeepSpeedConfig` (json).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import hjson

from autotune import dotted
from autotune.job.launcher import Launcher
from autotune.lint.document.line_index import LineIndex
from autotune.lint.document.reading import Reading, finding
from autotune.lint.document.reading_rules import (
    DECIMAL_COMMA,
    DUPLICATE_KEY,
    HJSON_ONLY,
    NOT_READABLE,
)
from autotune.lint.document.syntax_faults import SUGGESTIONS, Departure, SyntaxFault
from autotune.lint.document.tolerant_json import Scan, scan
from autotune.lint.finding import Finding, Severity

_MAX_ERRORS = 20
_HJSON_FORMS = frozenset(
    {
        SyntaxFault.COMMENT,
        SyntaxFault.TRAILING_COMMA,
        SyntaxFault.MISSING_COMMA,
        SyntaxFault.BARE_KEY,
        SyntaxFault.BARE_TEXT,
        SyntaxFault.SINGLE_QUOTES,
        SyntaxFault.NO_BRACES,
    }
)
"""What Hjson allows, where it reads the intended value."""
_SWALLOWS = frozenset({SyntaxFault.BARE_TEXT, SyntaxFault.MISSING_COMMA})
"""What makes hjson read the rest of a line as text."""


class _Unreadable:
    """The result for a text that a reader refuses."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def read_json(text: str, launcher: Launcher) -> Reading:
    """Read a text as the launcher would; where that fails, report the likely syntax fault."""
    seen, places = scan(text), LineIndex(text)
    strict, loose = _json(text), _hjson(text)
    # hjson misreads YAML: `fp16:` takes the line below as its text.
    as_intended = loose == seen.value and not any(
        d.fault is SyntaxFault.KEY_AS_TEXT for d in seen.departures
    )
    if not isinstance(strict, _Unreadable) and (as_intended or launcher is Launcher.HF):
        value = loose if as_intended and launcher is Launcher.DEEPSPEED else strict
        found = list(_no_numbers(seen, places))
    elif as_intended:
        value, found = loose, list(_hjson_only(seen, places, launcher))
    else:
        value, found = None, list(_syntax_faults(seen, places, loose))
    if value is not None:
        found += _duplicates(seen, places)
    positions = {key: places.of(offset) for key, offset in seen.offsets.items()}
    return Reading(value=value, positions=positions, findings=tuple(found))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return _Unreadable(error)


def _hjson(text: str) -> Any:
    """Read as DeepSpeed does; hjson 3.1 raises other errors for 1e999 and for an open comment."""
    try:
        return json.loads(json.dumps(hjson.loads(text)))
    except (ValueError, OverflowError, IndexError, RecursionError) as error:
        return _Unreadable(error)


def _syntax_faults(seen: Scan, places: LineIndex, loose: Any) -> Iterator[Finding]:
    """Yield one error for each place that keeps the text from being read as intended."""
    misread = {} if isinstance(loose, _Unreadable) else _misread(loose, seen.value)
    at_fault = [
        departure
        for departure in seen.departures
        if departure.fault not in _HJSON_FORMS
        or _field(departure) in misread
        or (isinstance(loose, _Unreadable) and departure.fault in _SWALLOWS)
    ]
    # A template has dozens of them, with one cause.
    placeholders = [d for d in at_fault if d.fault is SyntaxFault.PLACEHOLDER]
    at_fault = [d for d in at_fault if d not in placeholders[1:]]
    for departure in at_fault[:_MAX_ERRORS]:
        more = len(placeholders) - 1 if departure.fault is SyntaxFault.PLACEHOLDER else 0
        yield _syntax_fault(departure, places, misread, more=more)
    if not at_fault:
        yield finding(NOT_READABLE, f"not readable: {_reason(loose, misread)}")


def _syntax_fault(
    departure: Departure, places: LineIndex, misread: Mapping[str, Any], *, more: int
) -> Finding:
    field = _field(departure)
    named = f"{field}: " if field else ""
    what = f"{departure.fault}" + (f" ({departure.text})" if departure.text else "")
    if more:
        what += f" and {more} more"
    if field in misread:
        what += f"; DeepSpeed's reader reads the value as {misread[field]!r}"
    return finding(
        DECIMAL_COMMA if departure.fault is SyntaxFault.DECIMAL_COMMA else NOT_READABLE,
        named + what,
        field=field,
        at=places.of(departure.offset),
        suggestion=SUGGESTIONS[departure.fault],
    )


def _reason(loose: Any, misread: Mapping[str, Any]) -> str:
    if isinstance(loose, _Unreadable):
        return str(loose.error)
    return "DeepSpeed's reader reads other values: " + ", ".join(
        f"{key}={value!r}" for key, value in misread.items()
    )


def _misread(loose: Any, seen: Any) -> dict[str, Any]:
    """Return the dotted keys that hjson does not read as intended."""
    if not isinstance(loose, Mapping) or not isinstance(seen, Mapping):
        return {}
    intended = dotted.flatten(seen)
    return {
        key: value
        for key, value in dotted.flatten(loose).items()
        if key not in intended or intended[key] != value
    }


def _hjson_only(seen: Scan, places: LineIndex, launcher: Launcher) -> Iterator[Finding]:
    """Yield one finding for each kind of Hjson in the text, at its first place."""
    by_kind: dict[SyntaxFault, list[Departure]] = {}
    for departure in seen.departures:
        by_kind.setdefault(departure.fault, []).append(departure)
    for fault, departures in by_kind.items():
        more = f" (and {len(departures) - 1} more)" if len(departures) > 1 else ""
        readers = "DeepSpeed's hjson accepts it; json, which Hugging Face uses, does not"
        yield finding(
            HJSON_ONLY,
            f"{fault}{more}: {readers}",
            field=_field(departures[0]),
            at=places.of(departures[0].offset),
            suggestion=SUGGESTIONS[fault],
            severity=Severity.ERROR if launcher is Launcher.HF else Severity.WARNING,
        )


def _no_numbers(seen: Scan, places: LineIndex) -> Iterator[Finding]:
    """Yield a warning for each NaN and Infinity, which only Python's json accepts."""
    for departure in seen.departures:
        if departure.fault is SyntaxFault.NOT_A_NUMBER:
            yield finding(
                NOT_READABLE,
                f"{_field(departure)}={departure.text}: Python's json reads it, DeepSpeed's "
                "reader does not, and it is not JSON",
                field=_field(departure),
                at=places.of(departure.offset),
                suggestion=SUGGESTIONS[departure.fault],
                severity=Severity.WARNING,
            )


def _duplicates(seen: Scan, places: LineIndex) -> Iterator[Finding]:
    for key, first, again in seen.duplicates:
        yield finding(
            DUPLICATE_KEY,
            f"{key} is given twice, first in line {places.of(first)[0]}: DeepSpeed refuses the "
            "file, and json silently keeps the last one",
            field=key,
            at=places.of(again),
            suggestion="keep the intended one",
        )


def _field(departure: Departure) -> str:
    """Return the key with the fault, without its index in a list."""
    return departure.key.partition("[")[0]
