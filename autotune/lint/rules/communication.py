"""The data type of gradient communication, and how gradients are scaled."""

from collections.abc import Iterator

from autotune.lint.config_values import ZERO, data_type, fault, flag, number, precision, value_of
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_PREDIVIDE = "gradient_predivide_factor"


@rule("communication-dtype", Severity.WARNING)
def communication_dtype(subject: Subject) -> Iterator[Fault]:
    """Gradients are communicated in a type with a smaller range or less precision than their own.

    `communication_data_type` is the type that gradients are reduced in (`runtime/engine.py:
    communication_data_type`); unset, it is the type of the weights. fp16 ends at 65504: bf16 and
    fp32 gradients that pass it become infinite, and without loss scaling nothing detects it. Sums
    in bf16 of fp16 gradients lose three bits.

    Suggestion: remove it, or use "fp32".
    """
    key = "communication_data_type"
    value = value_of(subject, key)
    sent, weights = data_type(subject, key), precision(subject)
    if isinstance(value, str):
        sent = value.lower() if value.lower() in ("fp16", "bf16", "fp32") else None
    if sent is None or weights is None or sent in (weights, "fp32"):
        return
    why = "fp16 overflows at 65504" if sent == "fp16" else "bf16 keeps 8 significant bits"
    yield fault(
        subject,
        key,
        f"gradients are {weights}, and {why}",
        suggestion=f'remove it (gradients are then sent in {weights}), or use "fp32"',
    )


@rule("gradient-division", Severity.ERROR, refused_by=RefusedBy.INIT)
def gradient_division(subject: Subject) -> Iterator[Fault]:
    """Gradients are scaled before a reduce-scatter, which ZeRO 2 and 3 do not support.

    With `reduce_scatter` (on by default) `runtime/zero/stage_1_and_2.py` at stage 2 and
    `runtime/zero/stage3.py` assert that `gradient_predivide_factor` is 1 and `prescale_gradients`
    is off. Stage 2 checks it only where gradients are averaged (`gradient_allreduce_op` "mean").

    Suggestion: remove the key, or set `reduce_scatter` to false.
    """
    averaged = str(value_of(subject, "gradient_allreduce_op")).lower() == "mean"
    asserted = subject.zero_stage == 3 or (subject.zero_stage == 2 and averaged)
    if not asserted or not flag(subject, f"{ZERO}.reduce_scatter"):
        return
    why = f"ZeRO-{subject.zero_stage} with {ZERO}.reduce_scatter cannot scale gradients"
    suggestion = f"remove it, or set {ZERO}.reduce_scatter to false"
    factor = number(subject, _PREDIVIDE)
    if factor is not None and factor != 1:
        yield fault(subject, _PREDIVIDE, why, suggestion=suggestion)
    if value_of(subject, "prescale_gradients") is True:
        yield fault(subject, "prescale_gradients", why, suggestion=suggestion)


@rule("gradient-predivide-zero", Severity.ERROR, refused_by=RefusedBy.INIT)
def gradient_predivide_zero(subject: Subject) -> Iterator[Fault]:
    """`gradient_predivide_factor` is 0.

    Gradients are divided by it (`runtime/engine.py: allreduce_bucket`); the first reduction at
    stages 0 and 2 raises a ZeroDivisionError.

    Suggestion: remove it.
    """
    if number(subject, _PREDIVIDE) == 0:
        yield fault(subject, _PREDIVIDE, "gradients are divided by it", suggestion="remove it")


@rule("gradient-sum", Severity.ERROR, refused_by=RefusedBy.PARSE)
def gradient_sum(subject: Subject) -> Iterator[Fault]:
    """Gradients are summed where DeepSpeed supports only the average.

    `runtime/config.py: DeepSpeedConfig._do_error_check` refuses `gradient_allreduce_op` "sum" with
    ZeRO stage 3, with ZenFlow and with DeepCompile.

    Suggestion: use "mean", and scale the loss instead.
    """
    key = "gradient_allreduce_op"
    value = value_of(subject, key)
    if not isinstance(value, str) or value.lower() != "sum":
        return
    for name, present in (
        ("ZeRO stage 3", subject.zero_stage == 3),
        ("ZenFlow", subject.section(f"{ZERO}.zenflow") is not None),
        ("DeepCompile", bool(flag(subject, "compile.deepcompile"))),
    ):
        if present:
            yield fault(
                subject,
                key,
                f"not supported with {name}",
                suggestion='remove it or set it to "mean", and scale the loss instead',
            )
            return


@rule("unmanaged-accumulation", Severity.ERROR, refused_by=RefusedBy.INIT)
def unmanaged_accumulation(subject: Subject) -> Iterator[Fault]:
    """`managed_gradient_accumulation` is off where DeepSpeed needs it.

    `runtime/engine.py: _do_sanity_check`: with it off `overlap_comm` needs ZeRO stage 2 or 3, and
    pipeline parallelism and DeepCompile do not work at all.

    Suggestion: remove it, or set it to true.
    """
    key = "managed_gradient_accumulation"
    if value_of(subject, key) is not False:
        return
    stage = subject.zero_stage
    overlap = f"{ZERO}.overlap_comm"
    if stage in (0, 1) and flag(subject, overlap):
        yield fault(
            subject,
            overlap,
            f"needs ZeRO stage 2 or 3 with {key} off, and the stage is {stage}",
            suggestion=f"set it to false, or remove {key}",
        )
    if (subject.launch.pipeline_stages or 1) > 1:
        yield fault(
            subject, key, "pipeline parallelism needs it", suggestion="remove it or set it to true"
        )
    if flag(subject, "compile.deepcompile"):
        yield fault(subject, key, "DeepCompile needs it", suggestion="remove it or set it to true")


RULES = (
    communication_dtype,
    gradient_division,
    gradient_predivide_zero,
    gradient_sum,
    unmanaged_accumulation,
)
