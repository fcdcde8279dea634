"""The findings of rules about a ds_config."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from autotune import dotted


class Severity(StrEnum):
    """Severity of a finding, in order."""

    ERROR = "error"
    """DeepSpeed or the launcher refuses the config, the run dies, or it silently trains differently
    from the config."""
    WARNING = "warning"
    """It runs, but is probably not intended."""
    NOTE = "note"
    """Harmless; the verdict stays ok."""


class RefusedBy(StrEnum):
    """What stops a run with this fault, when the gate is not used."""

    PARSE = "parse"
    """`DeepSpeedConfig`, when it reads the config; no device is needed."""
    INIT = "init"
    """`deepspeed.initialize`, or the first step."""
    LAUNCHER = "launcher"
    """The Hugging Face Trainer or Accelerate, before DeepSpeed sees the config."""
    NOTHING = "nothing"
    """Nothing; the run continues and does not do what the config sets."""


class Verdict(StrEnum):
    """The gate's result for a whole config."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change that fixes the fault and nothing else; safe to apply automatically."""

    put: Mapping[str, Any] = field(default_factory=dict)
    """Dotted keys and the values to set."""
    drop: frozenset[str] = frozenset()
    """Dotted keys to remove."""

    def applied(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of a config with the change made.

        Example:
            >>> Fix(put={"b.c": 1}, drop=frozenset({"a"})).applied({"a": 0, "b": {"d": 2}})
            {'b': {'d': 2, 'c': 1}}
        """
        return dotted.updated(dotted.without(config, self.drop), self.put)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault at one place."""

    rule: str
    """The rule's id."""
    severity: Severity
    field: str
    """Dotted ds_config path as the file spells it; empty for the file as a whole."""
    message: str
    """Where, value, rule: one sentence."""
    suggestion: str | None = None
    """How to fix it, for a reader."""
    fix: Fix | None = None
    """What `--fix` applies; None where only a person can decide."""
    refused_by: RefusedBy = RefusedBy.NOTHING
    line: int | None = None
    """Of the field in the file, from 1; None where there is no text."""
    column: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "rule": self.rule,
            "severity": self.severity.value,
            "field": self.field,
            "message": self.message,
            "suggestion": self.suggestion,
            "line": self.line,
            "column": self.column,
        }
