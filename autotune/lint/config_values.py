"""What a config sets, as DeepSpeed's engine reads it, as far as it is known.

Every function returns None for what depends on something unknown: an "auto" that a launcher
resolves, or a value of the wrong type, which the type rule reports.
"""

from typing import Any

from autotune import dotted
from autotune.ds_config.fields.kind import bool_in, number_in
from autotune.ds_config.fields.table import field_of
from autotune.ds_config.key_aliases import current_key
from autotune.lint.finding import Fix, Severity
from autotune.lint.format_value import format_value
from autotune.lint.rule import Fault
from autotune.lint.subject import Subject

ZERO = "zero_optimization"
_MISSING = object()
_LARGEST = 1e300
"""A longer integer does not fit a float."""
_PRECISION = {
    "fp16": ("torch.float16", "fp16", "float16", "half"),
    "fp32": ("torch.float32", "fp32", "float32", "float"),
    "bf16": ("torch.bfloat16", "bf16", "bfloat16"),
    "int8": ("torch.int8", "int8"),
}
"""`runtime/config.py: DtypeEnum`."""


def value_of(subject: Subject, key: str) -> Any:
    """Return what a key is set to; DeepSpeed's default where the file does not set it."""
    value = subject.value(key, default=_MISSING)
    if value is not _MISSING:
        return value
    field = field_of(key)
    return field.default if field else None


def is_set(subject: Subject, key: str) -> bool:
    """Whether the file sets a key, by any of its names, to a value other than null."""
    return subject.value(key) is not None


def flag(subject: Subject, key: str) -> bool | None:
    """Return a switch, or its default where the file does not set it.

    "true" and 1 are True, as in pydantic.
    """
    value = value_of(subject, key)
    if isinstance(value, bool):
        return value
    return bool_in(str(value)) if isinstance(value, str | int | float) else None


def number(subject: Subject, key: str) -> float | None:
    """Return a number, or its default where the file does not set it; "5e8" is one too."""
    value = value_of(subject, key)
    return as_number(number_in(value) if isinstance(value, str) else value)


def as_number(value: Any) -> float | None:
    """Return a value if it is a finite number; else None.

    Example:
        >>> as_number(5), as_number(True), as_number(float("inf")), as_number(10**400)
        (5, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= _LARGEST else None  # also false for nan


def offload_device(subject: Subject, what: str) -> str | None:
    """Return where `optimizer` or `param` is offloaded to: none, cpu or nvme."""
    device = subject.value(f"{ZERO}.offload_{what}.device", default="none")
    return device if device in ("none", "cpu", "nvme") else None


def precision(subject: Subject) -> str | None:
    """Return what weights are trained in: fp16, bf16 or fp32."""
    fp16, bf16 = flag(subject, "fp16.enabled"), flag(subject, "bf16.enabled")
    if fp16 is None or bf16 is None or (fp16 and bf16):
        return None
    return "fp16" if fp16 else "bf16" if bf16 else "fp32"


def data_type(subject: Subject, key: str) -> str | None:
    """Return a data type by its short name; None where the file does not set a valid one."""
    value = subject.value(key)
    return next((name for name, names in _PRECISION.items() if value in names), None)


def uses_bf16_optimizer(subject: Subject) -> bool:
    """Whether stage 1 uses `BF16_Optimizer` instead of the ZeRO optimizer.

    See `runtime/engine.py: _do_optimizer_sanity_check`.
    """
    return (
        subject.zero_stage == 1
        and precision(subject) == "bf16"
        and data_type(subject, "data_types.grad_accum_dtype") == "fp32"
        and offload_device(subject, "optimizer") != "cpu"
    )


def place(subject: Subject, key: str) -> str:
    """Return the key of the file that sets a field or a section, by any name, deprecated ones too.

    Example:
        >>> place(
        ...     Subject(config={"zero_optimization": {"cpu_offload": True}}),
        ...     "zero_optimization.offload_optimizer",
        ... )
        'zero_optimization.cpu_offload'
    """
    if key in subject.flat or dotted.get(subject.config, key) is not None:
        return key
    for written in subject.flat:
        name = current_key(written)
        if name == key or name.startswith(f"{key}."):
            return written
    return key


def fault(
    subject: Subject,
    key: str,
    text: str,
    *,
    suggestion: str | None = None,
    fix: Fix | None = None,
    severity: Severity | None = None,
) -> Fault:
    """Return a fault of a key; its message starts with the key and its value.

    Args:
        subject: the config.
        key: documented name.
        text: the rule that the value breaks.
        suggestion: how to fix it.
        fix: what `--fix` may do.
        severity: None is the rule's.
    """
    where = place(subject, key)
    written = dotted.get(subject.config, where, subject.flat.get(where, _MISSING))
    if written is not _MISSING:
        setting = f"{where}={format_value(written)}"
    else:
        field = field_of(key)
        default = field.default if field else None
        setting = (
            f"{where} is not set"
            if default is None
            else f"{where}={format_value(default)} by default"
        )
    return Fault(
        field=where,
        message=f"{setting}: {text}",
        suggestion=suggestion,
        fix=fix,
        severity=severity,
    )
