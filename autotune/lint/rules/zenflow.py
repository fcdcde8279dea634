"""ZenFlow: selective updates with an offloaded optimizer."""

from collections.abc import Iterator

from autotune.lint.config_values import ZERO, fault, flag, offload_device, value_of
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_ZENFLOW = f"{ZERO}.zenflow"
_SELECT = f"{_ZENFLOW}.select_interval"
_UPDATE = f"{_ZENFLOW}.update_interval"
_SELECTIVE_ADAM = (
    *("lr", "betas", "eps", "weight_decay", "amsgrad", "foreach", "maximize"),
    *("capturable", "differentiable", "fused"),
)


def _is_on(subject: Subject) -> bool:
    return subject.section(_ZENFLOW) is not None


@rule("zenflow-offload", Severity.ERROR, refused_by=RefusedBy.INIT)
def zenflow_offload(subject: Subject) -> Iterator[Fault]:
    """ZenFlow is used without optimizer offload, or without `overlap_comm`.

    `runtime/zenflow/zenflow_stage_1_and_2.py: _configure_zenflow` needs `offload_optimizer`;
    `zenflow.offload` needs `overlap_comm`, which stages 1 and 2 leave off unless the file sets it
    (also `runtime/zenflow/engine_stage3.py`).

    Suggestion: offload the optimizer to the CPU with `overlap_comm`, or remove the section.
    """
    stage = subject.zero_stage
    if not _is_on(subject):
        return
    if stage in (1, 2) and offload_device(subject, "optimizer") == "none":
        yield fault(
            subject,
            _ZENFLOW,
            f"needs {ZERO}.offload_optimizer",
            suggestion=f'set {ZERO}.offload_optimizer to {{"device": "cpu"}}, or remove zenflow',
        )
    overlap = value_of(subject, f"{ZERO}.overlap_comm")
    off = overlap is False or (overlap is None and stage in (1, 2))
    if flag(subject, f"{_ZENFLOW}.offload") and stage in (1, 2, 3) and off:
        yield fault(
            subject,
            f"{_ZENFLOW}.offload",
            f"needs {ZERO}.overlap_comm",
            suggestion=f"set {ZERO}.overlap_comm to true",
        )


@rule("zenflow-stage", Severity.ERROR, refused_by=RefusedBy.INIT)
def zenflow_stage(subject: Subject) -> Iterator[Fault]:
    """ZenFlow is used without ZeRO.

    `runtime/zenflow/engine.py: configure_zenflow` replaces the reductions at any stage, and
    `runtime/engine.py: allreduce_gradients` then calls a ZeRO optimizer that stage 0 does not have.

    Suggestion: use stage 2 with `offload_optimizer`, or remove the section.
    """
    if _is_on(subject) and subject.zero_stage == 0:
        yield fault(
            subject,
            _ZENFLOW,
            "needs ZeRO stage 1, 2 or 3, and the stage is 0",
            suggestion=f"set {ZERO}.stage to 2 with offload_optimizer, or remove zenflow",
        )


@rule("zenflow-interval", Severity.ERROR, refused_by=RefusedBy.INIT)
def zenflow_interval(subject: Subject) -> Iterator[Fault]:
    """ZenFlow's intervals do not match its strategy.

    `runtime/zenflow/engine.py: configure_zenflow`: with `select_strategy` "auto" (the default)
    `select_interval` must not be set; with "step" and "epoch" it must be a number, and in steps at
    least `update_interval`.

    Suggestion: remove it, or set `select_strategy` to "step" or "epoch".
    """
    if not _is_on(subject):
        return
    strategy = value_of(subject, f"{_ZENFLOW}.select_strategy")
    select, update = value_of(subject, _SELECT), value_of(subject, _UPDATE)
    select_given = isinstance(select, int) and not isinstance(select, bool)
    if strategy == "auto" and select_given:
        yield fault(
            subject,
            _SELECT,
            'refused with select_strategy "auto"',
            suggestion='remove it, or set select_strategy to "step" or "epoch"',
        )
    elif strategy in ("step", "epoch") and select == "auto":
        yield fault(
            subject,
            _SELECT,
            f'must be a number with select_strategy "{strategy}"',
            suggestion="give the steps or epochs between two selections",
        )
    elif strategy == "step" and select_given and isinstance(update, int) and select < update:
        yield fault(
            subject,
            _SELECT,
            f"must be at least update_interval, which is {update}",
            suggestion=f"set it to {update} or more",
        )


@rule("zenflow-optimizer", Severity.ERROR, refused_by=RefusedBy.INIT)
def zenflow_optimizer(subject: Subject) -> Iterator[Fault]:
    """ZenFlow's optimizer has no such parameter.

    `runtime/zenflow/zenflow_stage_1_and_2.py: __init__` passes `optimizer.params` unchanged to
    torch's AdamW, which refuses the keys that only DeepSpeed removes (`torch_adam`, `adam_w_mode`).

    Suggestion: remove the parameter.
    """
    params = subject.section("optimizer.params")
    if not _is_on(subject) or subject.zero_stage not in (1, 2) or not params:
        return
    for param in params:
        if param not in _SELECTIVE_ADAM:
            yield fault(
                subject,
                f"optimizer.params.{param}",
                "ZenFlow's AdamW has no such parameter",
                suggestion="remove it",
            )


RULES = (zenflow_stage, zenflow_offload, zenflow_interval, zenflow_optimizer)
