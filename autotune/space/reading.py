"""Reads a search space from YAML, and reports every fault of the file at once."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from autotune.ds_config.fields.table import documented_key
from autotune.errors import SpaceError
from autotune.space.kinds import (
    ReportFault,
    described,
    number,
    read_kind,
    read_multiple_of,
    written,
)
from autotune.space.order import cycle_faults, ordered
from autotune.space.parameter import Kind, Parameter
from autotune.space.proposal import Scalar
from autotune.space.searchable import refusal, searchable_field, suggestion

_TOP = ("description", "parameters")
_ATTRIBUTES = ("choices", "low", "high", "log", "step", "multiple_of", "when")


@dataclass(frozen=True, slots=True)
class _Faults:
    """The faults found so far, each `file: key: value: rule; suggestion`."""

    source: str
    found: list[str] = field(default_factory=list)

    def add(self, fault: str) -> None:
        """Record a fault of the file."""
        self.found.append(f"{self.source}: {fault}")

    def of(self, key: str) -> ReportFault:
        """Return a function that records the faults of a key."""
        return lambda fault: self.add(f"{key}: {fault}")


@dataclass(frozen=True, slots=True)
class _Draft:
    """The valid part of a key's description."""

    key: str
    """As the file spells it."""
    kind: Kind | None = None
    when: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    multiple_of: int = 1

    def finished(self, name: str) -> Parameter:
        """Return the parameter of a draft without faults."""
        assert self.kind is not None
        return Parameter(key=name, kind=self.kind, when=self.when, multiple_of=self.multiple_of)


def read_parameters(text: str, *, source: str) -> tuple[Parameter, ...]:
    """Read the parameters of a search space, in an order that their conditions allow.

    Args:
        text: YAML, as in the file `zero.yaml` of the package `search_spaces`.
        source: the name of the file in messages.

    Raises:
        SpaceError: the file is wrong; every fault of it is named.
    """
    faults = _Faults(source)
    drafts: dict[str, _Draft] = {}
    for key, attributes in _read_yaml(text, faults).items():
        name = documented_key(key)
        if name in drafts:
            faults.of(key)(f"another name of {drafts[name].key}; keep one of them")
        else:
            drafts[name] = _read_draft(key, attributes, faults.of(key))
    for draft in drafts.values():
        _check_condition(draft.when, drafts, faults.of(draft.key))
    for name, fault in cycle_faults({name: draft.when for name, draft in drafts.items()}):
        faults.of(drafts[name].key)(fault)
    if faults.found:
        raise SpaceError(*faults.found)
    return ordered({name: draft.finished(name) for name, draft in drafts.items()})


def _read_yaml(text: str, faults: _Faults) -> Mapping[str, Any]:
    """Return the attributes of each key; empty, with faults, if the file has another form."""
    loader = _UniqueKeyLoader(text)
    try:
        content = loader.get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        faults.add(f"{where}not YAML: {getattr(error, 'problem', None) or error}")
        raise SpaceError(*faults.found) from error
    for line, key in loader.duplicates:
        faults.add(f"line {line}: {key}: given twice; keep one of them")
    if content is None:
        faults.add("the file is empty; it needs `parameters:` with keys below")
        return {}
    if not isinstance(content, dict):
        faults.add(f"contains a {type(content).__name__}; it needs `parameters:` with keys below")
        return {}
    for name in content:
        if name not in _TOP:
            faults.add(f"{name}: unknown at the top of the file; known: {', '.join(_TOP)}")
    keys = content.get("parameters")
    if not isinstance(keys, dict) or not keys:
        faults.add("parameters: names no key to search; add one, such as zero_optimization.stage")
        return {}
    return {str(key): attributes for key, attributes in keys.items()}


def _read_draft(key: str, attributes: Any, report: ReportFault) -> _Draft:
    known = searchable_field(key)
    if known is None:
        report(f"unknown key; {suggestion(key)}")
    elif reason := refusal(known):
        report(f"cannot be searched: {reason}")
        return _Draft(key)
    if not isinstance(attributes, dict):
        report(f"{written(attributes)}: needs `choices:`, or `low:` and `high:`")
        return _Draft(key)
    for name in attributes:
        if name not in _ATTRIBUTES:
            report(f"{name}: unknown attribute; known: {', '.join(_ATTRIBUTES)}")
    kind = read_kind(attributes, known, report)
    multiple_of = read_multiple_of(attributes, kind, report)
    when = _read_when(attributes.get("when"), report)
    return _Draft(key, kind, when, multiple_of)


def _read_when(when: Any, report: ReportFault) -> dict[str, tuple[Scalar, ...]]:
    if when is None:
        return {}
    if not isinstance(when, dict) or not when:
        report(f"when={written(when)}: must name keys with the values under which this one acts")
        return {}
    condition: dict[str, tuple[Scalar, ...]] = {}
    for parent, allowed in when.items():
        values = tuple(map(number, allowed if isinstance(allowed, list) else [allowed]))
        if not values or not all(isinstance(v, bool | int | float | str) for v in values):
            report(f"when: {parent}={written(allowed)}: must be a value or a list of values")
        else:
            condition[documented_key(str(parent))] = values
    return condition


def _check_condition(
    when: Mapping[str, tuple[Scalar, ...]], drafts: Mapping[str, _Draft], report: ReportFault
) -> None:
    for parent, allowed in when.items():
        if parent not in drafts:
            keys = ", ".join(draft.key for draft in drafts.values())
            report(f"when: {parent}: not a key of this space; its keys: {keys}")
            continue
        kind = drafts[parent].kind
        for value in allowed:
            if kind is not None and not kind.holds(value):
                report(
                    f"when: {parent}={written(value)}: not one of its values; "
                    f"it takes {described(kind)}"
                )


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML's safe loader, which records duplicate keys of a mapping instead of dropping them."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.duplicates: list[tuple[int, str]] = []

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        """Build a mapping, and record its duplicate keys."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                self.duplicates.append((key_node.start_mark.line + 1, str(key_node.value)))
            seen.add(str(key_node.value))
        return super().construct_mapping(node, deep=deep)
