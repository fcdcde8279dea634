"""The content of a file, before the kind of config is known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.lint.finding import Finding, Severity
from autotune.lint.rule_info import RuleInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The content of a text."""

    value: Any = None
    """None where it could not be read; then a finding gives the reason."""
    positions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Line and column, from 1, of every dotted key."""
    findings: tuple[Finding, ...] = ()


def finding(
    rule: RuleInfo,
    message: str,
    *,
    field: str = "",
    at: tuple[int, int] | None = None,
    suggestion: str | None = None,
    severity: Severity | None = None,
) -> Finding:
    """Make a finding of a reading rule; with a position, the message starts with it."""
    line, column = at if at is not None else (None, None)
    return Finding(
        rule=rule.id,
        severity=severity or rule.severity,
        field=field,
        message=f"line {line}, column {column}: {message}" if at is not None else message,
        suggestion=suggestion,
        line=line,
        column=column,
    )
