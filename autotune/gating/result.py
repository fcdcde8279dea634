"""What the gate says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.job.resolve import ResolvedJob
from autotune.lint.check import verdict_of
from autotune.lint.finding import Finding, Verdict
from autotune.planning.memory_answer import MemoryAnswer
from autotune.predict.memory.fit import Answer

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
    answer: MemoryAnswer
    """About memory: fits, does not fit, or not judged."""
    job: ResolvedJob
    """What was judged, with the origin of each fact."""
    deepspeed: AskedDeepSpeed
    measured: Mapping[str, Any] | None = None
    """What `--measure` measured, with the evaluator that did; None without it."""

    @property
    def verdict(self) -> Verdict:
        """The worst of the findings."""
        return verdict_of(self.findings)

    def passes(self, *, strict: bool) -> bool:
        """Whether the big run may start: no error; with `strict` no warning, and memory judged."""
        if not strict:
            return self.verdict is not Verdict.ERROR
        return self.verdict is Verdict.OK and self.answer.answer is not Answer.NOT_JUDGED

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values: what `autotune gate --format json` prints."""
        return {
            "ds_config": self.ds_config,
            "verdict": self.verdict.value,
            "findings": [finding.to_json() for finding in self.findings],
            "accepted": [finding.to_json() for finding in self.accepted],
            "memory": self.answer.to_json(),
            "memory_reason": self.answer.reason,
            "assumed": list(self.answer.assumed),
            "job": self.job.to_json(),
            "deepspeed": self.deepspeed.to_json(),
            "measured": None if self.measured is None else dict(self.measured),
        }
