"""What a rule says about a ds_config."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from autotune import dotted


class Severity(StrEnum):
    """How bad a finding is, in order."""

    ERROR = "error"
    """DeepSpeed or the launcher refuses the config, the run dies, or it silently trains otherwise
    than the config says."""
    WARNING = "warning"
    """It runs, and a careful colleague would ask."""
    NOTE = "note"
    """Harmless; the verdict stays ok."""


class RefusedBy(StrEnum):
    """Who stops a run over a fault, if anybody does, when nobody asks the gate."""

    PARSE = "parse"
    """`DeepSpeedConfig`, when it reads the config: no device is needed to see it."""
    INIT = "init"
    """`deepspeed.initialize`, or the first step."""
    LAUNCHER = "launcher"
    """The Hugging Face Trainer or Accelerate, before DeepSpeed sees the config."""
    NOBODY = "nobody"
    """The run goes on, and does not do what the config says."""


class Verdict(StrEnum):
    """What the gate says about a whole config."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change that mends the fault and nothing else; safe to apply without asking."""

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
    """The way out, for a reader."""
    fix: Fix | None = None
    """What `--fix` applies; None where only a person can decide."""
    refused_by: RefusedBy = RefusedBy.NOBODY
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
