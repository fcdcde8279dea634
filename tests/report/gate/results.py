"""Results of the gate, for its writers."""

from typing import Any

from autotune.gating.result import DeepSpeedSource, GateResult
from autotune.job.job import Job
from autotune.job.resolve import resolve_job
from autotune.lint.finding import Finding, Fix, Severity
from autotune.planning.memory_answer import MemoryAnswer
from autotune.predict.memory.fit import Answer

NASTY = '50% of "a", <b> & c: d,\r\n[/b] \ufffe é'
"""What XML, a workflow command and rich's markup each have trouble with."""

ERROR = Finding(
    rule="unknown-key",
    severity=Severity.ERROR,
    field="zero_optimization.stge",
    message="zero_optimization.stge: no such key",
    suggestion="write stage",
    fix=Fix(drop=frozenset({"zero_optimization.stge"})),
    line=3,
    column=5,
)
WARNING = Finding(
    rule="deprecated",
    severity=Severity.WARNING,
    field="cpu_offload",
    message=f"cpu_offload: {NASTY}",
    line=7,
)
NOTE = Finding(rule="cannot-act", severity=Severity.NOTE, field="", message="nothing")


def result(*findings: Finding, **changes: Any) -> GateResult:
    """Return a result with findings."""
    name = changes.pop("ds_config", "./configs/ds config.json")
    return GateResult(
        **{
            "ds_config": name,
            "file": name,
            "findings": findings,
            "answer": MemoryAnswer(answer=Answer.NOT_JUDGED, reason="give --model or --params"),
            "job": resolve_job(Job()),
            "deepspeed": DeepSpeedSource(version="0.19.8", how="table of fields"),
            **changes,
        }
    )
