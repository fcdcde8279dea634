"""Edits values in a JSON text and leaves the rest unchanged.

Line breaks, indents, the order of keys, the form of numbers, comments and trailing commas stay. The
caller must check the result by reading it back: texts that this parser does not support (Hjson
strings without quotes, duplicate keys) give a wrong result.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_BLANK = re.compile(r"(?:[\s\ufeff]|//[^\n]*|#[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BARE = re.compile(r"[^\s,{}\[\]:]+")
_SPACES = re.compile(r"[ \t]*")
_REST_OF_LINE = re.compile(r"[ \t]*(?:(?://|#)[^\n]*)?(?:\n|$)")
_BARE_BREAK = re.compile(r"(?<!\r)\n")
_INDENT = "  "


class NotEditableError(Exception):
    """The text is not JSON with comments."""


@dataclass(slots=True)
class _Value:
    """The place of a value in the text; for a section with its members."""

    start: int
    end: int
    members: "dict[str, _Member] | None" = None
    """None for a value that is not a section."""


@dataclass(frozen=True, slots=True)
class _Member:
    start: int
    """Offset of the key's opening quote."""
    key_end: int
    value: _Value = field(compare=False)


def edited(text: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the text with values changed, added, renamed and removed.

    Args:
        text: JSON, perhaps with comments and trailing commas.
        before: the config that the text holds.
        after: the config that the result holds.

    Raises:
        NotEditableError: the text is not JSON with comments.

    Example:
        >>> edited('{"a": 1,  "b": {"c": 5e8}}', {"a": 1, "b": {"c": 5e8}}, {"b": {"c": 5e8}})
        '{"b": {"c": 5e8}}'
    """
    if "\r\n" in text and not _BARE_BREAK.search(text):
        return edited(text.replace("\r\n", "\n"), before, after).replace("\n", "\r\n")
    # One change at a time, and the text is parsed again: a config is short, and offsets stay right.
    current = dict(before)
    while (step := next(_steps((), current, after), None)) is not None:
        text = step.apply(text)
        current = step.applied(current)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One change of one member."""

    section: tuple[str, ...]
    """Path of the section that holds the member."""
    old: str | None = None
    """The key before; None adds a member."""
    new: str | None = None
    """The key after; None removes the member."""
    value: Any = None

    def apply(self, text: str) -> str:
        """Return the text with the change made."""
        section = _section(text, self.section)
        if self.old is None:
            assert self.new is not None
            return _inserted(text, section, self.new, self.value)
        member = (section.members or {}).get(self.old)
        if member is None:
            raise NotEditableError(f"{self.old}: not found in the text")
        if self.new is None:
            return _removed(text, section, self.old)
        if self.new != self.old:
            return _spliced(text, member.start, member.key_end, json.dumps(self.new))
        value = _json_text(self.value, _indent_of(text, member.start))
        return _spliced(text, member.value.start, member.value.end, value)

    def applied(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config with the change made."""
        if self.section:
            head, *rest = self.section
            inner = _Step(section=tuple(rest), old=self.old, new=self.new, value=self.value)
            return {**config, head: inner.applied(config[head])}
        changed = {key: value for key, value in config.items() if key != self.old}
        return changed if self.new is None else changed | {self.new: self.value}


def _steps(
    path: tuple[str, ...], before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[_Step]:
    """Yield the changes from one section to another; a key with the same value is renamed."""
    added = [key for key in after if key not in before]
    for key in before:
        if key in after:
            continue
        same = (name for name in added if _equal(after[name], before[key]))
        name = next(same, None)
        if name is not None:
            added.remove(name)
        yield _Step(section=path, old=key, new=name, value=before[key])
    for key in added:
        yield _Step(section=path, new=key, value=after[key])
    for key, value in before.items():
        if key not in after or _equal(value, after[key]):
            continue
        if isinstance(value, Mapping) and isinstance(after[key], Mapping):
            yield from _steps((*path, key), value, after[key])
        else:
            yield _Step(section=path, old=key, new=key, value=after[key])


def _equal(left: Any, right: Any) -> bool:
    # True and 1, or 5.0 and 5, differ in a file although they are equal in Python.
    return repr(left) == repr(right)


def _section(text: str, path: tuple[str, ...]) -> _Value:
    value, _ = _read(text, _BLANK.match(text).end())  # type: ignore[union-attr]
    for key in path:
        member = (value.members or {}).get(key)
        if member is None:
            raise NotEditableError(f"{key}: not found in the text")
        value = member.value
    if value.members is None:
        raise NotEditableError("a section is missing")
    return value


def _read(text: str, start: int) -> tuple[_Value, int]:
    """Return the value at an offset, and the offset after it."""
    if start >= len(text):
        raise NotEditableError("unexpected end")
    if text[start] == "{":
        return _read_section(text, start)
    if text[start] == "[":
        end = _after_list(text, start)
        return _Value(start, end), end
    match = _STRING.match(text, start) or _BARE.match(text, start)
    if match is None:
        raise NotEditableError(f"offset {start}: no value")
    return _Value(start, match.end()), match.end()


def _read_section(text: str, start: int) -> tuple[_Value, int]:
    members: dict[str, _Member] = {}
    at = _skipped(text, start + 1)
    while text[at : at + 1] != "}":
        name = _STRING.match(text, at)
        if name is None:
            raise NotEditableError(f"offset {at}: no key in quotes")
        colon = _skipped(text, name.end())
        if text[colon : colon + 1] != ":":
            raise NotEditableError(f"offset {colon}: no colon")
        value, at = _read(text, _skipped(text, colon + 1))
        members[json.loads(name[0])] = _Member(name.start(), name.end(), value)
        at = _skipped(text, at)
        if text[at : at + 1] == ",":
            at = _skipped(text, at + 1)
        elif text[at : at + 1] != "}":
            raise NotEditableError(f"offset {at}: no comma")
    return _Value(start, at + 1, members), at + 1


def _after_list(text: str, start: int) -> int:
    at = _skipped(text, start + 1)
    while text[at : at + 1] != "]":
        _, at = _read(text, at)
        at = _skipped(text, at)
        if text[at : at + 1] == ",":
            at = _skipped(text, at + 1)
    return at + 1


def _skipped(text: str, start: int) -> int:
    match = _BLANK.match(text, start)
    assert match is not None
    return match.end()


def _removed(text: str, section: _Value, key: str) -> str:
    """Remove a member with its comma, and with its line if it is alone on it."""
    assert section.members is not None
    member = section.members[key]
    names = list(section.members)
    place = names.index(key)
    end = member.value.end
    comma = _skipped(text, end)
    if text[comma : comma + 1] == ",":
        end = comma + 1
    elif place > 0:
        # The last member goes, and so does the comma before it.
        before = section.members[names[place - 1]].value.end
        lost = text.index(",", _skipped(text, before))
        if "\n" not in text[lost : member.start]:
            return _spliced(text, lost, end, "")
        text, end = _spliced(text, lost, lost + 1, ""), end - 1
        member = _Member(member.start - 1, member.key_end - 1, member.value)
    start = member.start
    line = text.rfind("\n", 0, start) + 1
    rest = _REST_OF_LINE.match(text, end)
    if not text[line:start].strip() and rest is not None:
        return _spliced(text, line, rest.end(), "")
    spaces = _SPACES.match(text, end)
    return _spliced(text, start, end if spaces is None else spaces.end(), "")


def _inserted(text: str, section: _Value, key: str, value: Any) -> str:
    """Insert a member after the last one, on its own line if the last one has its own."""
    assert section.members is not None
    if not section.members:
        return _spliced(
            text, section.start, section.end, f"{{{json.dumps(key)}: {_json_text(value, None)}}}"
        )
    last = list(section.members.values())[-1]
    indent = _indent_of(text, last.start)
    entry = f"{json.dumps(key)}: {_json_text(value, indent)}"
    end = last.value.end
    comma = _skipped(text, end)
    has_comma = text[comma : comma + 1] == ","
    if indent is None:
        at = comma + 1 if has_comma else end
        return _spliced(text, at, at, f" {entry}" if has_comma else f", {entry}")
    if not has_comma:
        text, comma = _spliced(text, end, end, ","), end
    rest = _REST_OF_LINE.match(text, comma + 1)
    at = comma + 1 if rest is None else len(text[: rest.end()].rstrip("\n"))
    return _spliced(text, at, at, f"\n{indent}{entry}")


def _indent_of(text: str, start: int) -> str | None:
    """Return the indent of a member; None if it does not begin its line."""
    before = text[text.rfind("\n", 0, start) + 1 : start]
    return before if not before.strip() and "\n" in text[:start] else None


def _json_text(value: Any, indent: str | None) -> str:
    """Return a value as JSON; a section spans several lines if its member has its own line."""
    if not isinstance(value, Mapping) or indent is None:
        return json.dumps(value, ensure_ascii=False)
    # The member's own indent serves as the unit of indent.
    lines = json.dumps(value, ensure_ascii=False, indent=indent or _INDENT).split("\n")
    return f"\n{indent}".join(lines)


def _spliced(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + new + text[end:]
