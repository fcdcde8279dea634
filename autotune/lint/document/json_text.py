"""Reading a JSON or Hjson text as DeepSpeed or Hugging Face would, and as it was meant.

Source: DeepSpeed 0.19.8, runtime/config.py: `DeepSpeedConfig` (hjson); accelerate 1.15,
utils/deepspeed.py: `HfDeepSpeedConfig` (json).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import hjson

from autotune import dotted
from autotune.job.launcher import Launcher
from autotune.lint.document.line_index import Places
from autotune.lint.document.reading import Reading, finding
from autotune.lint.document.reading_rules import (
    DECIMAL_COMMA,
    DUPLICATE_KEY,
    HJSON_ONLY,
    NOT_READABLE,
)
from autotune.lint.document.syntax_faults import MENDS, Departure, Slip
from autotune.lint.document.tolerant_json import Scan, scan
from autotune.lint.finding import Finding, Severity

_MAX_ERRORS = 20
_HJSON_FORMS = frozenset(
    {
        Slip.COMMENT,
        Slip.TRAILING_COMMA,
        Slip.MISSING_COMMA,
        Slip.BARE_KEY,
        Slip.BARE_TEXT,
        Slip.SINGLE_QUOTES,
        Slip.NO_BRACES,
    }
)
"""What Hjson allows, as far as it then reads what was meant."""
_SWALLOWS = frozenset({Slip.BARE_TEXT, Slip.MISSING_COMMA})
"""What makes hjson take the rest of a line for text."""


class _Unreadable:
    """What stands for the value of a text that a reader refuses."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def read_json(text: str, launcher: Launcher) -> Reading:
    """Read a text as the launcher would; where that fails, name the likely slip."""
    seen, places = scan(text), Places(text)
    strict, loose = _json(text), _hjson(text)
    # hjson reads YAML too, in its own way: `fp16:` takes the line below for its text.
    as_meant = loose == seen.value and not any(d.slip is Slip.KEY_AS_TEXT for d in seen.departures)
    if not isinstance(strict, _Unreadable) and (as_meant or launcher is Launcher.HF):
        value = loose if as_meant and launcher is Launcher.DEEPSPEED else strict
        found = list(_no_numbers(seen, places))
    elif as_meant:
        value, found = loose, list(_hjson_only(seen, places, launcher))
    else:
        value, found = None, list(_slips(seen, places, loose))
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
    """Read as DeepSpeed does; hjson 3.1 fails in its own ways at 1e999 and at an open comment."""
    try:
        return json.loads(json.dumps(hjson.loads(text)))
    except (ValueError, OverflowError, IndexError, RecursionError) as error:
        return _Unreadable(error)


def _slips(seen: Scan, places: Places, loose: Any) -> Iterator[Finding]:
    """Yield one error for each place that keeps the text from being read as it was meant."""
    misread = {} if isinstance(loose, _Unreadable) else _misread(loose, seen.value)
    at_fault = [
        departure
        for departure in seen.departures
        if departure.slip not in _HJSON_FORMS
        or _field(departure) in misread
        or (isinstance(loose, _Unreadable) and departure.slip in _SWALLOWS)
    ]
    # A template has dozens of them, all of one cause.
    placeholders = [d for d in at_fault if d.slip is Slip.PLACEHOLDER]
    at_fault = [d for d in at_fault if d not in placeholders[1:]]
    for departure in at_fault[:_MAX_ERRORS]:
        more = len(placeholders) - 1 if departure.slip is Slip.PLACEHOLDER else 0
        yield _slip(departure, places, misread, more=more)
    if not at_fault:
        yield finding(NOT_READABLE, f"not readable: {_reason(loose, misread)}")


def _slip(
    departure: Departure, places: Places, misread: Mapping[str, Any], *, more: int
) -> Finding:
    field = _field(departure)
    named = f"{field}: " if field else ""
    what = f"{departure.slip}" + (f" ({departure.text})" if departure.text else "")
    if more:
        what += f" and {more} more"
    if field in misread:
        what += f"; DeepSpeed's reader takes {misread[field]!r} for the value"
    return finding(
        DECIMAL_COMMA if departure.slip is Slip.DECIMAL_COMMA else NOT_READABLE,
        named + what,
        field=field,
        at=places.of(departure.offset),
        suggestion=MENDS[departure.slip],
    )


def _reason(loose: Any, misread: Mapping[str, Any]) -> str:
    if isinstance(loose, _Unreadable):
        return str(loose.error)
    return "DeepSpeed's reader takes something else from it: " + ", ".join(
        f"{key}={value!r}" for key, value in misread.items()
    )


def _misread(loose: Any, meant: Any) -> dict[str, Any]:
    """Return the dotted keys that hjson reads as something else than was meant."""
    if not isinstance(loose, Mapping) or not isinstance(meant, Mapping):
        return {}
    intended = dotted.flatten(meant)
    return {
        key: value
        for key, value in dotted.flatten(loose).items()
        if key not in intended or intended[key] != value
    }


def _hjson_only(seen: Scan, places: Places, launcher: Launcher) -> Iterator[Finding]:
    """Yield one finding for each kind of Hjson in the text, at its first place."""
    by_kind: dict[Slip, list[Departure]] = {}
    for departure in seen.departures:
        by_kind.setdefault(departure.slip, []).append(departure)
    for slip, departures in by_kind.items():
        more = f" (and {len(departures) - 1} more)" if len(departures) > 1 else ""
        readers = "DeepSpeed's hjson reads it; json, with which Hugging Face reads, does not"
        yield finding(
            HJSON_ONLY,
            f"{slip}{more}: {readers}",
            field=_field(departures[0]),
            at=places.of(departures[0].offset),
            suggestion=MENDS[slip],
            severity=Severity.ERROR if launcher is Launcher.HF else Severity.WARNING,
        )


def _no_numbers(seen: Scan, places: Places) -> Iterator[Finding]:
    """Yield a warning for each NaN and Infinity, which Python's json reads though JSON has none."""
    for departure in seen.departures:
        if departure.slip is Slip.NOT_A_NUMBER:
            yield finding(
                NOT_READABLE,
                f"{_field(departure)}={departure.text}: Python's json reads it, DeepSpeed's own "
                "reader and JSON do not",
                field=_field(departure),
                at=places.of(departure.offset),
                suggestion=MENDS[departure.slip],
                severity=Severity.WARNING,
            )


def _duplicates(seen: Scan, places: Places) -> Iterator[Finding]:
    for key, first, again in seen.duplicates:
        yield finding(
            DUPLICATE_KEY,
            f"{key} is given twice, first in line {places.of(first)[0]}: DeepSpeed refuses the "
            "file, and json keeps the last one without a word",
            field=key,
            at=places.of(again),
            suggestion="keep the one that is meant",
        )


def _field(departure: Departure) -> str:
    """Return the key at fault, without the place in a list."""
    return departure.key.partition("[")[0]
