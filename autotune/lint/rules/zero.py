"""Conditions of ZeRO other than offload and ZeRO++."""

from collections.abc import Iterator

from autotune.lint.config_values import (
    ZERO,
    fault,
    flag,
    number,
    offload_device,
    uses_bf16_optimizer,
)
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_NORM = f"{ZERO}.compute_grad_norm"


@rule("gradient-norm-stage", Severity.ERROR, refused_by=RefusedBy.PARSE)
def gradient_norm_stage(subject: Subject) -> Iterator[Fault]:
    """The gradient norm is switched off where ZeRO needs it.

    `runtime/zero/config.py: compute_grad_norm_valid` accepts `compute_grad_norm` false at stages 1
    and 2 only.

    Suggestion: remove it, or set it to true.
    """
    if flag(subject, _NORM) is False and subject.zero_stage in (0, 3):
        yield fault(
            subject,
            _NORM,
            f"may be false at ZeRO stages 1 and 2 only, and the stage is {subject.zero_stage}",
            suggestion="remove it or set it to true",
        )


@rule("gradient-norm-needed", Severity.ERROR, refused_by=RefusedBy.INIT)
def gradient_norm_needed(subject: Subject) -> Iterator[Fault]:
    """The gradient norm is switched off, but another setting needs it.

    `runtime/zero/stage_1_and_2.py: __init__` refuses `compute_grad_norm` false with clipping
    (`gradient_clipping` is 1.0 unless the file sets it), with ZenFlow and with optimizer offload;
    `runtime/engine.py: _do_optimizer_sanity_check` with bf16 weights and fp32 gradient accumulation
    at stage 1.

    Suggestion: remove it, or set `gradient_clipping` to 0 where only clipping needs it.
    """
    if flag(subject, _NORM) is not False or subject.zero_stage not in (1, 2):
        return
    if (number(subject, "gradient_clipping") or 0) > 0:
        yield fault(
            subject,
            "gradient_clipping",
            f"clips by the gradient norm, which {_NORM}=false switches off",
            suggestion=f"set gradient_clipping to 0, or remove {_NORM}",
        )
    for name, present in (
        ("ZenFlow", subject.section(f"{ZERO}.zenflow") is not None),
        ("optimizer offload", offload_device(subject, "optimizer") in ("cpu", "nvme")),
        ("bf16 weights with fp32 gradient accumulation", uses_bf16_optimizer(subject)),
    ):
        if present:
            yield fault(
                subject, _NORM, f"not supported with {name}", suggestion="remove it or set it true"
            )


@rule("legacy-stage-1", Severity.ERROR, refused_by=RefusedBy.INIT)
def legacy_stage_1(subject: Subject) -> Iterator[Fault]:
    """The removed implementation of stage 1 is requested.

    `legacy_stage1` names an implementation that was removed in DeepSpeed 0.5.9; `runtime/engine.py:
    _configure_zero_optimizer` raises at every stage above 0.

    Suggestion: remove it; the current stage 1 does the same.
    """
    key = f"{ZERO}.legacy_stage1"
    if flag(subject, key) and subject.zero_stage and not uses_bf16_optimizer(subject):
        yield fault(
            subject,
            key,
            "the old stage 1 was removed in DeepSpeed 0.5.9",
            suggestion="remove it; the current stage 1 does the same",
        )


@rule("gradient-clipping", Severity.WARNING)
def gradient_clipping(subject: Subject) -> Iterator[Fault]:
    """`gradient_clipping` is negative.

    The optimizers clip where it is above 0 (`runtime/zero/stage_1_and_2.py:
    unscale_and_clip_grads`): a negative value silently switches clipping off, like 0.

    Suggestion: write 0 for no clipping, or the norm to clip at (1.0 is usual).
    """
    value = number(subject, "gradient_clipping")
    if value is not None and value < 0:
        yield fault(
            subject,
            "gradient_clipping",
            "a negative norm switches clipping off",
            suggestion="write 0 for no clipping, or the norm to clip at (1.0 is usual)",
        )


RULES = (gradient_norm_stage, gradient_norm_needed, legacy_stage_1, gradient_clipping)
