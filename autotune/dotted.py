"""Nested mappings and their dotted keys: `{"a": {"b": 1}}` and `{"a.b": 1}`."""

from collections.abc import Mapping
from typing import Any


def flatten(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of a nested mapping under their dotted keys.

    An empty mapping is a leaf: it says something in a ds_config (`"zero_optimization": {}`).

    Example:
        >>> flatten({"bf16": {"enabled": True}, "steps_per_print": 10})
        {'bf16.enabled': True, 'steps_per_print': 10}
    """
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            flat.update({f"{key}.{inner}": leaf for inner, leaf in flatten(value).items()})
        else:
            flat[key] = value
    return flat


def get(nested: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """Return the value at a dotted key, or `default` where the path does not exist.

    Example:
        >>> get({"bf16": {"enabled": True}}, "bf16.enabled")
        True
    """
    value: Any = nested
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def updated(nested: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `nested` with dotted keys set; a value in the way of a path is replaced.

    Example:
        >>> updated({"a": {"b": 1}}, {"a.c": 2, "d.e": 3})
        {'a': {'b': 1, 'c': 2}, 'd': {'e': 3}}
    """
    copy: dict[str, Any] = {
        key: updated(value, {}) if isinstance(value, Mapping) else value
        for key, value in nested.items()
    }
    for key, value in changes.items():
        *path, leaf = key.split(".")
        section = copy
        for part in path:
            if not isinstance(section.get(part), dict):
                section[part] = {}
            section = section[part]
        section[leaf] = value
    return copy


def without(nested: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    """Return a copy of `nested` without some dotted keys; sections emptied by it go too.

    Example:
        >>> without({"a": {"b": 1}, "c": 2}, frozenset({"a.b"}))
        {'c': 2}
    """
    copy: dict[str, Any] = {}
    for key, value in nested.items():
        if key in keys:
            continue
        if isinstance(value, Mapping):
            prefix = f"{key}."
            inner = frozenset(k.removeprefix(prefix) for k in keys if k.startswith(prefix))
            kept = without(value, inner)
            if kept or not value:
                copy[key] = kept
        else:
            copy[key] = value
    return copy
