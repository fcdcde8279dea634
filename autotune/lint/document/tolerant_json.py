"""Reads JSON as it was intended, and records every syntax fault with its place.

Neither `json` nor `hjson` gives the position of a value, and hjson misreads some faults (`True,` is
the string "True,"). The scanner keeps the positions, guesses the intended values and records where
the text differs from JSON, so that the two can be compared.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from autotune.lint.document.json_scalar import read_scalar
from autotune.lint.document.syntax_faults import Departure, SyntaxFault

MAX_DEPTH = 60
"""Nesting depth; a ds_config has five at most, and Python's readers stop near a thousand."""

_BLANK = re.compile(r"\s*")
_COMMENT = re.compile(r"(?:#|//)[^\r\n]*|/\*.*?(?:\*/|$)", re.DOTALL)
_BARE_KEY = re.compile(r"[^\s:={}\[\],\"'“”]+[\"'”]?")
_KEY_AHEAD = re.compile(r"[\"'“]?[\w-]+[\"'”]?\s*[:=]")
_CLOSING = {'"': '"', "'": "'", "“": '“”"', "”": '“”"', "„": '“”"'}
_ESCAPES = frozenset('"\\/bfnrtu')


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A text as it was intended."""

    value: Any
    """None where a guess is not possible."""
    offsets: Mapping[str, int]
    """Where each dotted key starts."""
    departures: tuple[Departure, ...]
    duplicates: tuple[tuple[str, int, int], ...]
    """Keys given again in one section: dotted key, first place, place of the repeat."""


class _StopError(Exception):
    """The rest of the text cannot be guessed."""


def scan(text: str) -> Scan:
    """Read a text as JSON, past its faults.

    Example:
        >>> scan('{"lr": 0,01, "on": True}').value
        {'lr': 0.01, 'on': True}
    """
    scanner = _Scanner(text)
    try:
        value = scanner.document()
    except _StopError:
        value = None
    return Scan(
        value=value,
        offsets=scanner.offsets,
        departures=tuple(scanner.departures),
        duplicates=tuple(scanner.duplicates),
    )


class _Scanner:
    """One pass over one text; `at` is the next offset."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.offsets: dict[str, int] = {}
        self.departures: list[Departure] = []
        self.duplicates: list[tuple[str, int, int]] = []
        self._unclosed: Departure | None = None
        self._commented = 0
        """End of the last comment that was recorded; blanks may be skipped more than once."""

    def document(self) -> Any:
        self._skip_blank()
        if self._next() not in ("{", "[") and _KEY_AHEAD.match(self.text, self.at):
            self._note(SyntaxFault.NO_BRACES, self.at)
            return self._section("", opening=None, depth=0)
        value = self._value("", depth=0)
        self._skip_blank()
        if self.at < len(self.text):
            wrong = self._next() in ("}", "]")
            self._note(SyntaxFault.WRONG_BRACKET if wrong else SyntaxFault.EXTRA_TEXT, self.at)
        return value

    def _value(self, key: str, *, depth: int, in_list: bool = False) -> Any:
        start, char = self.at, self._next()
        if depth > MAX_DEPTH:
            self._stop(SyntaxFault.TOO_DEEP, start, key)
        if char in _CLOSING:
            return self._string(key)
        if char == "[":
            return self._list(key, depth=depth)
        scalar = None
        if char == "{":
            scalar = read_scalar(self.text, start, in_list=in_list)
            if scalar.fault != SyntaxFault.PLACEHOLDER:
                self.at += 1
                return self._section(key, opening=start, depth=depth)
        scalar = scalar or read_scalar(self.text, start, in_list=in_list)
        self.at = scalar.end
        if scalar.fault is not None:
            self._note(scalar.fault, start, key, text=self.text[start : scalar.end])
        return scalar.value

    def _section(self, prefix: str, *, opening: int | None, depth: int) -> dict[str, Any]:
        section: dict[str, Any] = {}
        first: dict[str, int] = {}
        comma: int | None = None
        while True:
            end = self.at
            self._skip_blank()
            if self._close_section(opening, comma=comma, prefix=prefix):
                return section
            if self._next() == ",":
                self._note(SyntaxFault.EXTRA_COMMA, self.at, prefix)
                self.at += 1
                continue
            start = self.at
            self._suspect_unclosed(opening, start, prefix)
            name = self._key(prefix)
            key = f"{prefix}.{name}" if prefix else name
            if section and comma is None:
                self._note(SyntaxFault.MISSING_COMMA, end, key)
            if name in first:
                self.duplicates.append((key, first[name], start))
            first[name] = self.offsets[key] = start
            self._colon(key)
            section[name] = self._value(key, depth=depth + 1)
            comma = self._comma()

    def _close_section(self, opening: int | None, *, comma: int | None, prefix: str) -> bool:
        char = self._next()
        if char == "]" or (char == "}" and opening is None):
            self._stop(SyntaxFault.WRONG_BRACKET, self.at, prefix)
        if char not in ("}", ""):
            return False
        if comma is not None and opening is not None:
            self._note(SyntaxFault.TRAILING_COMMA, comma, prefix)
        if char == "" and opening is not None:
            self._missing_bracket(opening, prefix)
        self.at += 1
        return True

    def _list(self, key: str, *, depth: int) -> list[Any]:
        opening = self.at
        self.at += 1
        entries: list[Any] = []
        comma: int | None = None
        while True:
            end = self.at
            self._skip_blank()
            char = self._next()
            if char == "]":
                if comma is not None:
                    self._note(SyntaxFault.TRAILING_COMMA, comma, key)
                self.at += 1
                return entries
            if char in ("", "}", ":"):
                self._missing_bracket(opening, key)
                raise _StopError
            if char == ",":
                self._note(SyntaxFault.EXTRA_COMMA, self.at, key)
                self.at += 1
                continue
            if entries and comma is None:
                self._note(SyntaxFault.MISSING_COMMA, end, key)
            place = f"{key}[{len(entries)}]"
            entries.append(self._value(place, depth=depth + 1, in_list=True))
            comma = self._comma()

    def _key(self, prefix: str) -> str:
        start = self.at
        if self._next() in _CLOSING:
            name = self._string(prefix)
            self._skip_blank()
            if self._next() not in (":", "=") and re.search("[:,]", name):
                self._stop(SyntaxFault.MISSING_QUOTE, start, prefix)
            return name
        match = _BARE_KEY.match(self.text, start)
        if match is None:
            self._stop(SyntaxFault.EXTRA_TEXT, start, prefix)
        self.at = match.end()
        name = match.group()
        if name[-1] in "\"'”":
            self._note(SyntaxFault.MISSING_QUOTE, start, prefix, text=name)
            return name[:-1]
        self._note(SyntaxFault.BARE_KEY, start, f"{prefix}.{name}" if prefix else name, text=name)
        return name

    def _colon(self, key: str) -> None:
        self._skip_blank()
        if self._next() not in (":", "="):
            self._note(SyntaxFault.MISSING_COLON, self.at, key)
            return
        if self._next() == "=":
            self._note(SyntaxFault.EQUALS_SIGN, self.at, key)
        self.at += 1
        self._skip_blank()

    def _comma(self) -> int | None:
        """Skip a comma at the current offset, and return its offset."""
        before = self.at
        self._skip_blank()
        if self._next() != ",":
            self.at = before
            return None
        self.at += 1
        return self.at - 1

    def _string(self, key: str) -> str:
        start, quote = self.at, self._next()
        if self.text.startswith("'''", start):
            return self._long_string(key)
        if quote != '"':
            self._note(
                SyntaxFault.SINGLE_QUOTES if quote == "'" else SyntaxFault.CURLY_QUOTES, start, key
            )
        self.at += 1
        while (char := self._next()) not in _CLOSING[quote]:
            if char in "\r\n":
                self._stop(SyntaxFault.MISSING_QUOTE, start, key)
            if char == "\\":
                if self.text[self.at + 1 : self.at + 2] not in _ESCAPES:
                    self._note(SyntaxFault.BAD_ESCAPE, self.at, key)
                self.at += 1
            elif char < " ":
                self._note(SyntaxFault.CONTROL_CHARACTER, self.at, key)
            self.at += 1
        if self.at >= len(self.text):
            self._stop(SyntaxFault.MISSING_QUOTE, start, key)
        self.at += 1
        return _unescaped(self.text[start + 1 : self.at - 1])

    def _long_string(self, key: str) -> str:
        start = self.at
        end = self.text.find("'''", start + 3)
        if end < 0:
            self._stop(SyntaxFault.MISSING_QUOTE, start, key)
        self._note(SyntaxFault.SINGLE_QUOTES, start, key)
        self.at = end + 3
        return self.text[start + 3 : end].strip()

    def _skip_blank(self) -> None:
        while True:
            self.at = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]
            match = _COMMENT.match(self.text, self.at)
            if match is None:
                return
            if self.at >= self._commented:
                self._note(SyntaxFault.COMMENT, self.at)
            self.at = self._commented = match.end()

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _suspect_unclosed(self, opening: int | None, start: int, prefix: str) -> None:
        """Remember the first key that is indented too little for the section it is read into."""
        if self._unclosed is not None or opening is None:
            return
        before = self._line_before(start)
        same_line = self._line_start(opening) == self._line_start(start)
        outer = self._line_before(opening)
        indent = len(outer) - len(outer.lstrip())
        if not same_line and not before.strip() and prefix and len(before) <= indent:
            self._unclosed = Departure(fault=SyntaxFault.MISSING_BRACKET, offset=start, key=prefix)

    def _line_start(self, offset: int) -> int:
        return max(self.text.rfind(mark, 0, offset) for mark in "\r\n") + 1

    def _line_before(self, offset: int) -> str:
        return self.text[self._line_start(offset) : offset]

    def _missing_bracket(self, opening: int, key: str) -> None:
        suspect = self._unclosed
        if suspect is not None:
            self.departures.append(suspect)
        else:
            self._note(SyntaxFault.MISSING_BRACKET, opening, key)

    def _note(self, fault: SyntaxFault, offset: int, key: str = "", *, text: str = "") -> None:
        self.departures.append(Departure(fault=fault, offset=offset, key=key, text=text))

    def _stop(self, fault: SyntaxFault, offset: int, key: str) -> NoReturn:
        self._note(fault, offset, key)
        raise _StopError


def _unescaped(inner: str) -> str:
    try:
        return str(json.loads(f'"{inner}"'))
    except ValueError:
        return inner
