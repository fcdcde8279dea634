"""The steps of the gate: read, lint, predict, ask, compare, measure; then what counts of it."""

from collections.abc import Iterable
from pathlib import Path

from autotune.ds_config.read import read_ds_config
from autotune.fields.table import table_version
from autotune.gate.hardware import memory_setting
from autotune.gate.memory import judge_memory
from autotune.gate.reading import planned_launch
from autotune.gate.request import GateRequest
from autotune.gate.result import AskedDeepSpeed, GateResult
from autotune.lint.check import lint
from autotune.lint.finding import Finding, Severity
from autotune.lint.subject import Subject

_ORDER = {severity: place for place, severity in enumerate(Severity)}


def gate(request: GateRequest) -> GateResult:
    """Judge a ds_config.

    Raises:
        AutotuneError: the request is wrong, or a file beside the config; what is wrong with the
            config is a finding.
    """
    launch = planned_launch(request)
    setting = memory_setting(request, launch)
    subject = Subject(config=read_ds_config(Path(request.ds_config)), launch=launch)
    findings = list(lint(subject))
    judgement = judge_memory(subject, setting=setting)
    findings += judgement.findings
    return GateResult(
        ds_config=request.ds_config,
        findings=_worst_first(f for f in findings if f.rule not in request.ignore),
        memory=judgement.memory,
        memory_reason=judgement.reason,
        deepspeed=AskedDeepSpeed(version=table_version(), how="table of fields"),
    )


def _worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: _ORDER[finding.severity]))
