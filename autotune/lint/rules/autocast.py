"""torch's autocast, which DeepSpeed applies by the `torch_autocast` section."""

from collections.abc import Iterator

from autotune.lint.config_values import data_type, fault, flag, precision, value_of
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_ENABLED = "torch_autocast.enabled"
_DTYPE = "torch_autocast.dtype"
_MODULES = "torch_autocast.lower_precision_safe_modules"


@rule("autocast-dtype", Severity.WARNING)
def autocast_dtype(subject: Subject) -> Iterator[Fault]:
    """Autocast is on without a data type.

    `runtime/torch_autocast.py: autocast_if_enabled` then leaves the choice to torch, whose default
    on a GPU is float16; DeepSpeed scales the loss only where the config sets float16
    (`runtime/engine.py: __init__`, `runtime/zero/stage3.py: __init__`), so small gradients vanish.

    Suggestion: set `torch_autocast.dtype` to "bfloat16", or to "float16" with loss scaling.
    """
    if flag(subject, _ENABLED) and value_of(subject, _DTYPE) is None:
        yield fault(
            subject,
            _DTYPE,
            "torch takes float16 on a GPU, and DeepSpeed does not scale the loss then",
            suggestion='write "bfloat16" (Ampere and later), or "float16" with loss scaling',
        )


@rule("autocast-scaler", Severity.ERROR, refused_by=RefusedBy.INIT)
def autocast_scaler(subject: Subject) -> Iterator[Fault]:
    """A bf16 model is cast to float16 by autocast, without ZeRO.

    At stage 0 `runtime/engine.py: _take_model_step` steps with torch's GradScaler, which finds no
    gradients in DeepSpeed's bf16 optimizer and asserts in the first step.

    Suggestion: set `torch_autocast.dtype` to "bfloat16", or switch bf16 off.
    """
    if not flag(subject, _ENABLED) or data_type(subject, _DTYPE) != "fp16":
        return
    if subject.zero_stage == 0 and precision(subject) == "bf16":
        yield fault(
            subject,
            _DTYPE,
            "torch's loss scaler does not work with DeepSpeed's bf16 optimizer",
            suggestion='write "bfloat16", or switch bf16.enabled off',
        )


@rule("autocast-modules", Severity.ERROR, refused_by=RefusedBy.INIT)
def autocast_modules(subject: Subject) -> Iterator[Fault]:
    """A class for autocast is named without its module.

    `runtime/torch_autocast.py: init_autocast_params` imports each entry of
    `lower_precision_safe_modules` and raises on what it cannot import, such as a bare "Linear".

    Suggestion: write the full path, such as "torch.nn.Linear".
    """
    names = value_of(subject, _MODULES)
    if not flag(subject, _ENABLED) or not isinstance(names, list):
        return
    for name in names:
        if isinstance(name, str) and "." not in name:
            yield fault(
                subject,
                _MODULES,
                f"{name} must be a class with its module",
                suggestion=f"write the full path, such as torch.nn.{name}",
            )


RULES = (autocast_dtype, autocast_scaler, autocast_modules)
