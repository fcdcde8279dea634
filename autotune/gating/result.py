"""The result of the gate."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.job.resolve import ResolvedJob
from autotune.lint.check import verdict_of
from autotune.lint.finding import Finding, Verdict
from autotune.planning.memory_answer import MemoryAnswer
from autotune.predict.memory.fit import Answer

DEVICE_MEMORY = "device-memory"
"""The id of the rule about device memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeedSource:
    """The DeepSpeed version that the findings hold for, and where its facts come from."""

    version: str | None
    """None if it is unknown."""
    how: str
    """`table of fields`, or `DeepSpeedConfig`: the installed parser."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"version": self.version, "how": self.how}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The findings and the memory answer about one ds_config."""

    ds_config: str
    """The file as given; `-` is standard input."""
    file: str
    """The file that line numbers refer to: an Accelerate YAML may name another one."""
    findings: tuple[Finding, ...]
    """Worst first; without ignored and accepted findings."""
    accepted: tuple[Finding, ...] = ()
    """Findings that the file of `--accepted` accepts."""
    answer: MemoryAnswer
    """Memory: fits, does not fit, or not judged."""
    job: ResolvedJob
    """The job that was judged, with the origin of each fact."""
    deepspeed: DeepSpeedSource
    measured: Mapping[str, Any] | None = None
    """Results of `--measure` and the evaluator that ran it; None without it."""

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
