"""Applies the rules of the gate to a candidate before its launch."""

from collections.abc import Mapping
from typing import Any

from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.job.launcher import Launcher
from autotune.job.workload import Workload
from autotune.lint.check import lint
from autotune.lint.finding import Finding, Severity
from autotune.lint.subject import Launch, Subject
from autotune.study.candidate import Candidate
from autotune.study.outcome import Failure, Outcome, Phase, Status


def lint_for(
    workload: Workload,
    ds_config: Mapping[str, Any],
    *,
    launcher: Launcher = Launcher.DEEPSPEED,
    activation_checkpointing: bool | None = None,
) -> tuple[Finding, ...]:
    """Return the findings of the rules in a config of a workload, worst first."""
    launch = Launch(
        launcher=launcher,
        gpus=workload.world_size,
        model=workload.model,
        num_parameters=workload.model.num_parameters,
        seq_len=workload.seq_len,
        activation_checkpointing=activation_checkpointing,
    )
    return lint(Subject(config=ds_config, launch=launch))


def refusal(candidate: Candidate, workload: Workload) -> Outcome | None:
    """Return the outcome of a candidate that must not be launched; None if it may be."""
    findings = lint_for(
        workload,
        candidate.ds_config,
        activation_checkpointing=bool(candidate.model_settings.get("activation_checkpointing")),
    )
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if not errors:
        return None
    reason = "; ".join(f"{error.message} [{error.rule}]" for error in errors)
    return Outcome(
        status=Status.INVALID,
        evaluator=EvaluatorKind.MODELLED.value,
        failure=Failure(reason=f"not launched: {reason}", phase=Phase.BUILD),
    )
