"""The learning-rate schedule: its name, and whether the optimizer supports it."""

import difflib
from collections.abc import Iterator

from autotune.lint.config_values import fault, precision
from autotune.lint.finding import Fix, RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.schedulers import OWN, TORCH
from autotune.lint.subject import Subject

_TYPE = "scheduler.type"


@rule("unknown-scheduler", Severity.ERROR, refused_by=RefusedBy.INIT)
def unknown_scheduler(subject: Subject) -> Iterator[Fault]:
    """DeepSpeed has no learning-rate schedule of this name.

    `runtime/engine.py: _scheduler_from_config` accepts LRRangeTest, OneCycle, WarmupLR,
    WarmupDecayLR and WarmupCosineLR, else classes of `torch.optim.lr_scheduler`, with this
    spelling.

    Suggestion: use one of these names, or pass your schedule to `deepspeed.initialize`.
    """
    name = subject.value(_TYPE)
    if not isinstance(name, str) or name in (*OWN, *TORCH, "auto"):
        return
    known = {known.lower(): known for known in (*OWN, *TORCH)}
    near = difflib.get_close_matches(name.lower(), known, n=1)
    same = known.get(name.lower())
    yield fault(
        subject,
        _TYPE,
        "DeepSpeed has no such schedule",
        suggestion=f'did you mean "{known[near[0]]}"?' if near else f"use one of {', '.join(OWN)}",
        fix=Fix(put={_TYPE: same}) if same else None,
    )


@rule("torch-scheduler", Severity.ERROR, refused_by=RefusedBy.INIT)
def torch_scheduler(subject: Subject) -> Iterator[Fault]:
    """A torch schedule is used with an optimizer that is not a torch optimizer.

    `runtime/engine.py: _scheduler_from_config` passes DeepSpeed's wrapper to the schedule. With
    ZeRO, fp16 or bf16 that is not a `torch.optim.Optimizer`, and torch's schedules raise a
    TypeError.

    Suggestion: use a DeepSpeed schedule, or pass a function that builds yours to
    `deepspeed.initialize`.
    """
    name, trained_in = subject.value(_TYPE), precision(subject)
    wrapped = subject.zero_stage in (1, 2, 3) or trained_in in ("fp16", "bf16")
    if name in TORCH and wrapped:
        yield fault(
            subject,
            _TYPE,
            "torch's schedules refuse DeepSpeed's ZeRO and 16-bit optimizers",
            suggestion="use one of DeepSpeed's (WarmupCosineLR, WarmupDecayLR), or pass a function "
            "that builds the schedule to deepspeed.initialize",
        )


@rule("scheduler-without-type", Severity.ERROR)
def scheduler_without_type(subject: Subject) -> Iterator[Fault]:
    """The scheduler section names no schedule.

    `runtime/config.py: get_scheduler_name` then finds none, and the learning rate stays constant.

    Suggestion: add a type, or remove the section.
    """
    section = subject.section("scheduler")
    if section and section.get("type") is None and "params" in section:
        yield fault(
            subject,
            "scheduler",
            "without a type DeepSpeed ignores the section",
            suggestion='add "type": "WarmupLR", or remove the section',
        )


RULES = (
    unknown_scheduler,
    torch_scheduler,
    scheduler_without_type,
)
