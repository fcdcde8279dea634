"""Keys of the engine: printing, logging, the autotuner's switch, and sections that it ignores."""

from collections.abc import Iterator

from autotune.lint.config_values import fault, flag, number, value_of
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
_TENSOR_CORE = 8


@rule("steps-per-print", Severity.ERROR, refused_by=RefusedBy.INIT)
def steps_per_print(subject: Subject) -> Iterator[Fault]:
    """`steps_per_print` is 0.

    `runtime/engine.py: _take_model_step` takes the number of steps modulo it: the first step raises
    a ZeroDivisionError. null never prints.

    Suggestion: remove it to never print, or write a large number.
    """
    if number(subject, "steps_per_print") == 0:
        yield fault(
            subject,
            "steps_per_print",
            "the first step divides by it",
            suggestion="remove it to never print, or write a large number",
        )


@rule("log-level", Severity.ERROR, refused_by=RefusedBy.INIT)
def log_level(subject: Subject) -> Iterator[Fault]:
    """`log_level` is not a level of Python's logging.

    `runtime/engine.py: __init__` passes it to `utils/logging.py: set_log_level_from_string`, which
    raises on anything but debug, info, warning, error and critical, in any case.

    Suggestion: info is usual.
    """
    level = value_of(subject, "log_level")
    if isinstance(level, str) and level != "auto" and level.lower() not in _LOG_LEVELS:
        yield fault(
            subject,
            "log_level",
            f"must be one of {', '.join(_LOG_LEVELS)}",
            suggestion="info is usual",
        )


@rule("autotuning-run", Severity.NOTE)
def autotuning_run(subject: Subject) -> Iterator[Fault]:
    """DeepSpeed's autotuner is switched on in a config that trains.

    `runtime/engine.py: _autotuning_exit` ends the program after `autotuning.end_profile_step` steps
    (5), and with `model_info.profile` `forward` ends it at once. It is for runs under `deepspeed
    --autotuning` only.

    Suggestion: remove the section to train.
    """
    if flag(subject, "autotuning.enabled"):
        last = number(subject, "autotuning.end_profile_step")
        profiled = value_of(subject, "autotuning.model_info.profile") is True
        when = "in its first forward pass" if profiled or last is None else f"after step {last:g}"
        yield fault(
            subject,
            "autotuning.enabled",
            f"ends the program {when}",
            suggestion="remove the section to train; it is for deepspeed --autotuning",
        )


@rule("activation-checkpointing-section", Severity.NOTE)
def activation_checkpointing_section(subject: Subject) -> Iterator[Fault]:
    """The activation_checkpointing section switches nothing on.

    The engine never reads it: it sets up `deepspeed.checkpointing.checkpoint`, which the model must
    call itself (`runtime/activation_checkpointing/checkpointing.py: configure`), as Megatron does.

    Suggestion: for Hugging Face models call `model.gradient_checkpointing_enable()`, or give
    `--gradient_checkpointing`.
    """
    if subject.section("activation_checkpointing"):
        yield fault(
            subject,
            "activation_checkpointing",
            "acts only in models that call deepspeed.checkpointing themselves",
            suggestion="Hugging Face: --gradient_checkpointing",
        )


@rule("vocabulary-alignment", Severity.NOTE)
def vocabulary_alignment(subject: Subject) -> Iterator[Fault]:
    """`vocabulary_size` is not a multiple of 8.

    `runtime/config.py: _do_warning_check` warns: tensor cores work on multiples of 8. The key does
    nothing else.

    Suggestion: pad the embedding to a multiple of 8.
    """
    size = number(subject, "vocabulary_size")
    if size and size % _TENSOR_CORE:
        yield fault(
            subject,
            "vocabulary_size",
            f"should be a multiple of {_TENSOR_CORE} for tensor cores",
            suggestion=f"pad the embedding to {-(-int(size) // _TENSOR_CORE) * _TENSOR_CORE}",
        )


RULES = (
    steps_per_print,
    log_level,
    autotuning_run,
    activation_checkpointing_section,
    vocabulary_alignment,
)
