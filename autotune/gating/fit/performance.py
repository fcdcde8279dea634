"""Settings that cost speed and save memory that the job does not need.

They are reported only if model and hardware are known, if the job fits by formulas with all their
margin, and if the predicted gain is large: the speed model is coarse.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import HardwareError
from autotune.job.ceiling import GIB
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule import Fault, located
from autotune.lint.rule_info import RuleInfo
from autotune.lint.subject import Subject
from autotune.planning.planned_job import PlannedJob
from autotune.predict.throughput import Throughput, predict_throughput
from autotune.predict.throughput.surroundings import check_speeds
from autotune.predict.training_job import Training

NEEDLESS_OFFLOAD, NEEDLESS_SHARDING = "needless-offload", "needless-sharding"
_ZERO = "zero_optimization"
WIDE = 0.75
"""Largest share of the device that the job without the setting may take, margins included."""
MIN_SPEEDUP = 1.25
"""Smallest gain that is reported: half of the speed model's error is common to both sides."""
MOSTLY_FROZEN = 0.1
"""Largest trained share of a model for which stage 3 gathers mainly frozen weights."""

PERFORMANCE_RULES: tuple[RuleInfo, ...] = (
    RuleInfo(
        id=NEEDLESS_OFFLOAD,
        severity=Severity.WARNING,
        text="""Offload costs time, and the job fits without it.

With offload the optimizer steps on the CPU, whose cores all ranks of a node share, and states
travel over the host's link: on 32 A100 the optimizer step of a 72B model took 10 s with both
offloads and 0.2 s without (deepspeedai/DeepSpeed#6834). Reported only if the job without it fits
into three quarters of the device.

Suggestion: remove the offload sections.""",
    ),
    RuleInfo(
        id=NEEDLESS_SHARDING,
        severity=Severity.WARNING,
        text="""Stage 3 gathers frozen weights in every pass, and they fit on every device.

With adapters (LoRA) or a frozen base, gradients and optimizer states are small, and stage 2 gathers
nothing in a pass. Three A100 ran 20 steps in 20 minutes at stage 3 and in 17 s at stage 2
(hiyouga/LlamaFactory#3499). Reported only if the job at stage 2 fits into three quarters of the
device.

Suggestion: use stage 2.""",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alternative:
    """The job without a setting, compared with the job as it is."""

    share: float
    """Of the device, margins included."""
    needed_bytes: int
    speedup: float
    step_s: float
    """Predicted, the optimizer's part alone."""
    current_step_s: float


def performance_findings(subject: Subject, job: PlannedJob) -> Iterator[Finding]:
    """Yield what costs speed without need; for a job that fits.

    Args:
        subject: the config and its launch.
        job: the planned job; judged with the model settings that need the least memory.
    """
    if has_speed(job):
        yield from _needless_offload(subject, job)
        yield from _needless_sharding(subject, job)


def _needless_offload(subject: Subject, job: PlannedJob) -> Iterator[Finding]:
    zero = job.training(job.settings[0]).zero
    sections = [n for n in ("offload_optimizer", "offload_param") if getattr(zero, n).enabled]
    if not sections:
        return
    put = {f"{_ZERO}.{name}.device": "none" for name in sections}
    alternative = _without(job, put | _no_switches(subject))
    if alternative is None:
        return
    why = (
        f"the job is predicted to fit without it ({alternative.needed_bytes / GIB:.0f} of "
        f"{job.limit_bytes / GIB:.0f} GiB{_assumed(job)}), and to run "
        f"{alternative.speedup:.1f} times as fast: {alternative.step_s:.2g} s an optimizer step "
        f"instead of {alternative.current_step_s:.2g} s"
    )
    for name in sections:
        key = f"{_ZERO}.{name}"
        fault = Fault(field=key, message=why, suggestion=f"remove {key}")
        yield located(subject, fault, rule=NEEDLESS_OFFLOAD, severity=Severity.WARNING)


def _needless_sharding(subject: Subject, job: PlannedJob) -> Iterator[Finding]:
    training = job.training(job.settings[0])
    trained = training.trainable_parameters
    if training.zero.stage < 3 or trained is None or training.world_size == 1:
        return
    if training.zero.offload_param.enabled or not subject.launch.num_trainable:
        return
    if trained > MOSTLY_FROZEN * training.model.num_parameters:
        return
    alternative = _without(job, {f"{_ZERO}.stage": 2})
    if alternative is None:
        return
    why = (
        f"the frozen weights fit on every device ({alternative.needed_bytes / GIB:.0f} of "
        f"{job.limit_bytes / GIB:.0f} GiB predicted at stage 2{_assumed(job)}), and "
        f"stage 2 gathers none of them: predicted {alternative.speedup:.1f} times as fast"
    )
    fault = Fault(field=f"{_ZERO}.stage", message=why, suggestion=f"{_ZERO}.stage: 2")
    yield located(subject, fault, rule=NEEDLESS_SHARDING, severity=Severity.WARNING)


def _without(job: PlannedJob, put: Mapping[str, Any]) -> _Alternative | None:
    """Return the job with keys changed if it fits by a wide margin and is much faster."""
    training = job.training(job.settings[0], put)
    device = job.screen(training).device
    before = job.training(job.settings[0])
    alternative = _Alternative(
        share=device.needed_bytes / job.limit_bytes,
        needed_bytes=device.needed_bytes,
        speedup=predicted_speed(job, training) / predicted_speed(job, before),
        step_s=optimizer_step_s(job, training),
        current_step_s=optimizer_step_s(job, before),
    )
    wins = alternative.share <= WIDE and alternative.speedup >= MIN_SPEEDUP
    return alternative if wins else None


def _assumed(job: PlannedJob) -> str:
    """Return the assumption that the claim depends on, if no source states it."""
    if len(job.settings) > 1 and job.settings[0].activation_checkpointing:
        return " with activation checkpointing"
    return ""


def _no_switches(subject: Subject) -> dict[str, Any]:
    """Return the deprecated offload switches of the config, set to off."""
    section = subject.section(_ZERO) or {}
    return {f"{_ZERO}.{k}": False for k in ("cpu_offload", "cpu_offload_param") if k in section}


def has_speed(job: PlannedJob) -> bool:
    """Whether the device's speed is known; a user may give its memory alone."""
    try:
        check_speeds(job.device, job.workload.precision)
    except HardwareError:
        return False
    return True


def predicted_speed(job: PlannedJob, training: Training) -> float:
    """Return tokens/s of all ranks."""
    return _predicted(job, training).tokens_per_s


def optimizer_step_s(job: PlannedJob, training: Training) -> float:
    """Return the seconds of the optimizer's part of a step."""
    return _predicted(job, training).items["optimizer"]


def _predicted(job: PlannedJob, training: Training) -> Throughput:
    return predict_throughput(training, job.speed_surroundings)
