"""Applies some rules to a config that is written as dotted keys."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from autotune import dotted
from autotune.lint.finding import Finding
from autotune.lint.rule import Rule
from autotune.lint.subject import Launch, Subject


def findings(rules: Iterable[Rule], keys: Mapping[str, Any], **launch: Any) -> list[Finding]:
    """Return what rules find in a config, in a launch of which these facts are known."""
    subject = Subject(config=dotted.updated({}, deepcopy(dict(keys))), launch=Launch(**launch))
    return [finding for rule in rules for finding in rule.findings(subject)]


def reported(rules: Iterable[Rule], keys: Mapping[str, Any], **launch: Any) -> list[str]:
    """Return the findings as `severity rule field`."""
    return [f"{f.severity} {f.rule} {f.field}" for f in findings(rules, keys, **launch)]


def zero(stage: int, **keys: Any) -> dict[str, Any]:
    """Return dotted keys of the zero_optimization section."""
    return {f"zero_optimization.{key}": value for key, value in ({"stage": stage} | keys).items()}
