"""Reads a YAML text with the position of every key."""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from autotune.lint.document.reading import Reading, finding
from autotune.lint.document.reading_rules import DUPLICATE_KEY, NOT_READABLE, YAML_NUMBER
from autotune.lint.document.tolerant_json import MAX_DEPTH
from autotune.lint.finding import Finding, Severity

_MAX_NODES = 50_000
"""Values of one file, with aliases expanded: a few lines of them can expand to millions."""
_SIMPLE = frozenset({f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "null")})
_TEXT = "tag:yaml.org,2002:str"
_NUMBER_AS_TEXT = re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _TooLargeError(Exception):
    """More values, or a deeper nesting, than any config has."""


def read_yaml(text: str) -> Reading:
    """Read a YAML text; of a duplicate key the last one counts, as in PyYAML."""
    try:
        _check_depth(text)
        loader = _Loader(text)
        try:
            return _Builder(loader).reading(loader.get_single_node())
        finally:
            loader.dispose()
    except _TooLargeError as error:
        fault = finding(NOT_READABLE, str(error), suggestion="give the path of the config")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        fault = finding(
            NOT_READABLE,
            f"not readable as YAML: {error.problem or error.context}",
            at=(mark.line + 1, mark.column + 1) if mark else None,
            suggestion=_suggestion(error),
        )
    except (yaml.YAMLError, RecursionError) as error:
        fault = finding(NOT_READABLE, f"not readable as YAML: {error}".splitlines()[0])
    return Reading(findings=(fault,))


def _suggestion(error: yaml.MarkedYAMLError) -> str:
    if "\\t" in (error.problem or ""):
        return "indent with spaces; YAML does not allow tabs"
    return "check the indentation, the colons and the brackets of that line and the one before"


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise _TooLargeError("sections nested too deeply for a config")


class _Builder:
    """Converts the nodes of one document to plain values with their positions."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._positions: dict[str, tuple[int, int]] = {}
        self._findings: list[Finding] = []
        self._num_nodes = 0

    def reading(self, root: yaml.Node | None) -> Reading:
        value = None if root is None else self._value(root, "", depth=0)
        return Reading(value=value, positions=self._positions, findings=tuple(self._findings))

    def _value(self, node: yaml.Node, key: str, *, depth: int) -> Any:
        self._num_nodes += 1
        if self._num_nodes > _MAX_NODES or depth > MAX_DEPTH:
            raise _TooLargeError("too many values for a config")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, key, depth=depth)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(entry, key, depth=depth + 1) for entry in node.value]
        return self._scalar(node, key)

    def _mapping(self, node: yaml.MappingNode, prefix: str, *, depth: int) -> dict[str, Any]:
        self._findings += self._duplicates(node, prefix)
        self._loader.flatten_mapping(node)
        section: dict[str, Any] = {}
        for name_node, value_node in node.value:
            name = str(name_node.value)
            key = f"{prefix}.{name}" if prefix else name
            self._positions[key] = _at(name_node)
            section[name] = self._value(value_node, key, depth=depth + 1)
        return section

    def _duplicates(self, node: yaml.MappingNode, prefix: str) -> Iterator[Finding]:
        first: dict[str, int] = {}
        for name_node, _ in node.value:
            name = str(name_node.value)
            key = f"{prefix}.{name}" if prefix else name
            line, column = _at(name_node)
            if name in first and name != "<<":
                yield finding(
                    DUPLICATE_KEY,
                    f"{key} is given twice, first in line {first[name]}: YAML silently "
                    "keeps the last one",
                    field=key,
                    at=(line, column),
                    suggestion="keep the intended one",
                )
            first.setdefault(name, line)

    def _scalar(self, node: yaml.Node, key: str) -> Any:
        if node.tag in _SIMPLE:
            try:
                return self._loader.construct_object(node)
            except ValueError:
                return node.value
        plain = not getattr(node, "style", None)
        if plain and node.tag == _TEXT and _NUMBER_AS_TEXT.fullmatch(node.value):
            self._findings.append(
                finding(
                    YAML_NUMBER,
                    f"{key}: {node.value} is text in YAML 1.1, which PyYAML reads",
                    field=key,
                    at=_at(node),
                    suggestion=f"write {_yaml_float(node.value)}",
                    severity=Severity.NOTE,
                )
            )
        return node.value


def _at(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _yaml_float(text: str) -> str:
    """Return a number in a form that YAML 1.1 reads as one.

    Example:
        >>> _yaml_float("1e-8"), _yaml_float("5e8")
        ('1.0e-8', '5.0e+8')
    """
    mantissa, _, exponent = text.lower().partition("e")
    point = "" if "." in mantissa else ".0"
    sign = "" if exponent[0] in "+-" else "+"
    return f"{mantissa}{point}e{sign}{exponent}"
