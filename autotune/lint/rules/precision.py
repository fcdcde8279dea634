"""fp16, bf16, loss scaling, master weights and gradient accumulation types."""

from collections.abc import Iterator

from autotune.lint.config_values import (
    data_type,
    fault,
    flag,
    number,
    offload_device,
    precision,
    uses_bf16_optimizer,
    value_of,
)
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_LARGEST_SCALE_POWER = 32
"""DeepSpeed's default was 32 before 0.5.9; a float overflows at 128."""
_MASTER = ("fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads")
_STATES = "bf16.bf16_optimizer_states"


@rule("two-precisions", Severity.ERROR, refused_by=RefusedBy.PARSE)
def two_precisions(subject: Subject) -> Iterator[Fault]:
    """Both fp16 and bf16 are switched on.

    `runtime/config.py: DeepSpeedConfig._initialize_params` asserts that at most one of
    `fp16.enabled` and `bf16.enabled` is true. A section that is switched off may stay.

    Suggestion: use bf16 on Ampere and later GPUs, fp16 on earlier ones.
    """
    if not (flag(subject, "fp16.enabled") and flag(subject, "bf16.enabled")):
        return
    for mine, other in (("fp16", "bf16"), ("bf16", "fp16")):
        yield fault(
            subject,
            f"{mine}.enabled",
            f"{other}.enabled is true as well; only one precision may be on",
            suggestion="set fp16.enabled to false (bf16 needs Ampere or later), or bf16.enabled",
        )


@rule("loss-scaling", Severity.ERROR, refused_by=RefusedBy.PARSE)
def loss_scaling(subject: Subject) -> Iterator[Fault]:
    """Dynamic loss scaling has a window or a minimum that is not positive.

    With fp16 on and `loss_scale` 0 the scale is dynamic: it is raised every `loss_scale_window`
    steps and never falls below `min_loss_scale`. `runtime/precision_config.py:
    _validate_dynamic_loss_scale_params` refuses both unless they are above 0.

    Suggestion: remove them for DeepSpeed's defaults.
    """
    if not flag(subject, "fp16.enabled") or number(subject, "fp16.loss_scale") != 0:
        return
    for key, usual in (("fp16.loss_scale_window", 1000), ("fp16.min_loss_scale", 1)):
        value = number(subject, key)
        if value is not None and value <= 0:
            yield fault(
                subject,
                key,
                "must be above 0 with a dynamic loss scale (fp16.loss_scale=0)",
                suggestion=f"{usual} is DeepSpeed's default",
            )


@rule("initial-loss-scale", Severity.WARNING)
def initial_loss_scale(subject: Subject) -> Iterator[Fault]:
    """The initial dynamic loss scale is extreme.

    The scale begins at 2 to the power of `initial_scale_power` (`runtime/precision_config.py:
    initial_dynamic_scale`). fp16 ends at 65504, so above 2^32 the run begins with many skipped
    steps, each halving the scale; below 2^0 small gradients vanish.

    Suggestion: 16 is DeepSpeed's default.
    """
    power = number(subject, "fp16.initial_scale_power")
    if not flag(subject, "fp16.enabled") or number(subject, "fp16.loss_scale") != 0:
        return
    if power is not None and not 0 <= power <= _LARGEST_SCALE_POWER:
        yield fault(
            subject,
            "fp16.initial_scale_power",
            f"the loss scale would start at 2^{power:g}; expected 0 to {_LARGEST_SCALE_POWER}",
            suggestion="16 is DeepSpeed's default",
        )


@rule("master-weights-stage", Severity.ERROR, refused_by=RefusedBy.PARSE)
def master_weights_stage(subject: Subject) -> Iterator[Fault]:
    """16-bit master weights or optimizer states are set without ZeRO, or one without the other.

    `runtime/config.py: DeepSpeedConfig._do_error_check`: `fp16_master_weights_and_grads`,
    `bf16_master_weights_and_grads` and `bf16_optimizer_states` need ZeRO stage 1, 2 or 3, and
    `bf16_optimizer_states` needs `bf16_master_weights_and_grads`. This applies even where the
    precision is switched off.

    Suggestion: use ZeRO, and set both keys or neither.
    """
    for key in (*_MASTER, _STATES):
        if flag(subject, key) and subject.zero_stage == 0:
            yield fault(
                subject,
                key,
                "needs ZeRO stage 1, 2 or 3, and the stage is 0",
                suggestion="remove it, or set zero_optimization.stage",
            )
    if flag(subject, _STATES) and flag(subject, _MASTER[1]) is False and subject.zero_stage:
        yield fault(
            subject,
            _STATES,
            "needs bf16.bf16_master_weights_and_grads",
            suggestion="set bf16.bf16_master_weights_and_grads to true",
        )


@rule("master-weights-offload", Severity.ERROR, refused_by=RefusedBy.INIT)
def master_weights_offload(subject: Subject) -> Iterator[Fault]:
    """16-bit master weights are set without DeepSpeed's Adam on the CPU.

    `runtime/base_optimizer.py: _configure_master_weights` asserts that master weights in fp16, or
    in bf16 with optimizer states still in fp32, are used with optimizer offload and
    DeepSpeedCPUAdam; only bf16 master weights together with `bf16_optimizer_states` may stay on the
    GPU. Both kinds of master weights at once are refused too. Stage 1 in bf16 with fp32 gradient
    accumulation uses `runtime/bf16_optimizer.py`, which reads none of these.

    Suggestion: offload the optimizer to the CPU with Adam or AdamW.
    """
    stage, device = subject.zero_stage, offload_device(subject, "optimizer")
    if not stage or device is None or uses_bf16_optimizer(subject):
        return
    fp16, bf16 = (flag(subject, key) for key in _MASTER)
    if fp16 and bf16:
        yield fault(subject, _MASTER[0], f"{_MASTER[1]} is true as well; only one of them may be")
        return
    torch_adam = bool(value_of(subject, "optimizer.params.torch_adam"))
    on_cpu = device != "none" and not torch_adam
    for key, asked in zip(_MASTER, (fp16, bf16), strict=True):
        stays = key == _MASTER[1] and flag(subject, _STATES) is not False and device == "none"
        if asked and not on_cpu and not stays:
            yield fault(
                subject,
                key,
                "needs optimizer offload with DeepSpeed's Adam on the CPU",
                suggestion='set zero_optimization.offload_optimizer to {"device": "cpu"} with an '
                "Adam or AdamW optimizer and without torch_adam"
                + ("; or set bf16.bf16_optimizer_states to true" if bf16 else ""),
            )


@rule("gradient-accumulation-dtype", Severity.ERROR, refused_by=RefusedBy.INIT)
def gradient_accumulation_dtype(subject: Subject) -> Iterator[Fault]:
    """Gradients are accumulated in a type that does not match the weights.

    Without ZeRO gradients are accumulated in the type of the weights: `runtime/engine.py:
    _do_optimizer_sanity_check` raises NotImplementedError for any other
    `data_types.grad_accum_dtype`. With ZeRO int8 fails in the first reduction. fp16 with bf16
    weights runs, and overflows where bf16 would not.

    Suggestion: use "fp32".
    """
    key = "data_types.grad_accum_dtype"
    wanted, weights = data_type(subject, key), precision(subject)
    if wanted is None or weights is None or subject.zero_stage is None:
        return
    if subject.zero_stage == 0 and wanted != weights:
        yield fault(
            subject,
            key,
            f"without ZeRO gradients can only be accumulated in the type of the weights, {weights}",
            suggestion="remove it, or use ZeRO stage 1, 2 or 3",
        )
    elif wanted == "int8":
        yield fault(
            subject, key, "gradients cannot be accumulated in int8", suggestion='use "fp32"'
        )
    elif wanted == "fp16" and weights == "bf16":
        yield fault(
            subject,
            key,
            "fp16 overflows at 65504, which bf16 gradients may pass",
            suggestion='use "fp32" or "bf16"',
            severity=Severity.WARNING,
        )


@rule("parameter-dtype", Severity.ERROR, refused_by=RefusedBy.INIT)
def parameter_dtype(subject: Subject) -> Iterator[Fault]:
    """`data_types.param_dtype` contradicts the precision that is switched on.

    `runtime/engine.py: _assert_valid_mixed_precision_config`: the type of the weights follows from
    `fp16.enabled` and `bf16.enabled` (fp32 where neither is on); `param_dtype` may only repeat it.

    Suggestion: remove it.
    """
    key = "data_types.param_dtype"
    wanted, weights = data_type(subject, key), precision(subject)
    if wanted is not None and weights is not None and wanted != weights:
        yield fault(
            subject,
            key,
            f"weights are {weights} with fp16.enabled and bf16.enabled as they are",
            suggestion="remove it, and switch the precision on by fp16.enabled or bf16.enabled",
        )


@rule("input-cast", Severity.WARNING, refused_by=RefusedBy.INIT)
def input_cast(subject: Subject) -> Iterator[Fault]:
    """Inputs are cast to fp16 for a model that is not in fp16.

    `runtime/engine.py: forward` casts floating-point inputs to half where `fp16.auto_cast` is true,
    even where fp16 is off; the first layer of a bf16 or fp32 model then fails on mismatched types.
    Token ids are integers and not cast.

    Suggestion: remove it, or set it to false.
    """
    if flag(subject, "fp16.auto_cast") and precision(subject) in ("bf16", "fp32"):
        yield fault(
            subject,
            "fp16.auto_cast",
            f"casts floating-point inputs to fp16, and the weights are {precision(subject)}",
            suggestion="remove it or set it to false",
        )


RULES = (
    two_precisions,
    loss_scaling,
    initial_loss_scale,
    master_weights_stage,
    master_weights_offload,
    gradient_accumulation_dtype,
    parameter_dtype,
    input_cast,
)
