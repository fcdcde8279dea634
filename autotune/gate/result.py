"""What the gate says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.lint.check import verdict_of
from autotune.lint.finding import Finding, Severity, Verdict

DEVICE_MEMORY = "device-memory"
"""The rule that says whether the device suffices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDeepSpeed:
    """Which DeepSpeed the findings speak of, and how it was asked."""

    version: str | None
    """None where the real one is not installed."""
    how: str
    """`table of fields`, or `DeepSpeedConfig`: its real classes."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"version": self.version, "how": self.how}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What the gate says about one ds_config."""

    ds_config: str
    """The file, as it was named; `-` is standard input."""
    file: str
    """The file that lines and columns belong to: an Accelerate YAML may name another one."""
    findings: tuple[Finding, ...]
    """Worst first; without what is ignored or accepted."""
    accepted: tuple[Finding, ...] = ()
    """Found, and accepted by the file of `--accepted`."""
    memory: Mapping[str, Any] | None = None
    """As `autotune plan --json` prints it, and `assumptions`: what nobody said."""
    memory_reason: str | None = None
    """Why there is no memory; None if there is."""
    deepspeed: AskedDeepSpeed
    measured: Mapping[str, Any] | None = None
    """What `--measure` measured, with the evaluator that did; None without it."""

    @property
    def verdict(self) -> Verdict:
        """The worst of the findings."""
        return verdict_of(self.findings)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the verdict on memory rests on, because nobody said it.

        None where the device does not suffice: what was not said is taken at its leanest.
        """
        does_not_suffice = any(
            finding.rule == DEVICE_MEMORY and finding.severity is Severity.ERROR
            for finding in self.findings
        )
        if self.memory is None or does_not_suffice:
            return ()
        return tuple(self.memory.get("assumptions", ()))

    def passes(self, *, strict: bool) -> bool:
        """Whether the big run may start: no error, and with `strict` no warning either."""
        return self.verdict is Verdict.OK or (self.verdict is Verdict.WARNING and not strict)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values: what `autotune gate --format json` prints."""
        return {
            "ds_config": self.ds_config,
            "verdict": self.verdict.value,
            "findings": [finding.to_json() for finding in self.findings],
            "accepted": [finding.to_json() for finding in self.accepted],
            "memory": None if self.memory is None else dict(self.memory),
            "memory_reason": self.memory_reason,
            "deepspeed": self.deepspeed.to_json(),
            "measured": None if self.measured is None else dict(self.measured),
        }
