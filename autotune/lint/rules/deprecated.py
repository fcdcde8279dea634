"""Keys that DeepSpeed deprecates, and keys that it has removed."""

from collections.abc import Iterator, Mapping
from typing import Any

from autotune.ds_config.fields.table import documented_key
from autotune.ds_config.key_aliases import current_key
from autotune.lint.config_entries import Entry
from autotune.lint.finding import Fix, RefusedBy, Severity
from autotune.lint.format_value import format_value
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_ZERO = "zero_optimization"
_SWITCHES = {
    f"{_ZERO}.cpu_offload": f"{_ZERO}.offload_optimizer",
    f"{_ZERO}.cpu_offload_param": f"{_ZERO}.offload_param",
}
_OLD_BF16 = "bfloat16"


@rule("deprecated", Severity.WARNING)
def deprecated(subject: Subject) -> Iterator[Fault]:
    """A key is deprecated: DeepSpeed still accepts it and logs a warning.

    `cpu_offload: true` becomes `offload_optimizer: {"device": "cpu"}`, `cpu_offload_param` becomes
    `offload_param`, `stage3_gather_fp16_weights_on_model_save` loses its "fp" for "16bit"
    (`runtime/zero/config.py`). `cpu_offload_use_pin_memory` is read by nothing. The section
    `bfloat16` is called `bf16` (`runtime/precision_config.py: get_bfloat16_config`), and
    `"zero_optimization": true` is `{"stage": 1}` (`read_zero_config_deprecated`).

    A switch that is off is a note: it changes nothing today, and a later DeepSpeed will refuse it.

    Suggestion: write the new key.
    """
    for entry in subject.entries:
        field = entry.field
        if field is not None and field.deprecated and entry.section:
            if _new_beside(subject, entry) is None:
                yield _old_field(entry)
        elif entry.path == _OLD_BF16:
            yield _old_bf16(subject, entry)
        elif entry.path == _ZERO and isinstance(entry.value, bool):
            yield _old_zero(subject, entry)


@rule("deprecated-beside-new", Severity.ERROR, refused_by=RefusedBy.PARSE)
def deprecated_beside_new(subject: Subject) -> Iterator[Fault]:
    """A deprecated key and the key that replaces it are both set.

    DeepSpeed refuses `cpu_offload` together with `offload_optimizer`, also where the old key is
    false (`runtime/config_utils.py: _process_deprecated_field`).

    Suggestion: remove the old key.
    """
    for entry in subject.entries:
        new = _new_beside(subject, entry)
        if new is not None and entry.value != "auto":
            yield Fault(
                field=entry.path,
                message=(
                    f"{entry.path}={format_value(entry.value)}: deprecated; DeepSpeed refuses it "
                    f"together with {new}"
                ),
                suggestion=f"remove {entry.key}",
                fix=Fix(drop=frozenset({entry.path})) if _is_off(entry.value) else None,
            )


@rule("removed", Severity.ERROR, refused_by=RefusedBy.PARSE)
def removed(subject: Subject) -> Iterator[Fault]:
    """A key belongs to a feature that DeepSpeed no longer has.

    DeepSpeed refuses it by name, switched on or off (`runtime/config.py:
    _reject_removed_config_keys`): Apex `amp`, `nebula`, `sparse_attention`, `sparse_gradients`,
    `elasticity`, `compression_training`, MiCS and others.

    Suggestion: remove it. Where it was switched on, the message names its replacement, if there is
    one.
    """
    for entry in subject.entries:
        if entry.field is None or entry.field.removed is None:
            continue
        what = entry.field.removed.partition(" See http")[0]
        yield Fault(
            field=entry.path,
            message=f"{entry.path}: {what.rstrip('. ')}",
            suggestion=f"remove {entry.key}",
            fix=Fix(drop=frozenset({entry.path})) if _is_off(entry.value) else None,
        )


RULES = (deprecated, deprecated_beside_new, removed)


def _new_beside(subject: Subject, entry: Entry) -> str | None:
    """Return the key beside a deprecated one that replaces it; None if there is none."""
    if entry.field is None or not entry.field.deprecated:
        return None
    for other, value in (subject.section(entry.section) or {}).items():
        if documented_key(f"{entry.section}.{other}") == entry.field.successor and value != "auto":
            return other
    return None


def _old_field(entry: Entry) -> Fault:
    drop = frozenset({entry.path})
    successor = _SWITCHES.get(entry.path) or current_key(entry.path)
    if entry.path in _SWITCHES:
        new: Mapping[str, Any] = {f"{successor}.device": "cpu"}
        advice = f'write {successor.rpartition(".")[2]}: {{"device": "cpu"}}'
    elif successor != entry.path:
        new = {successor: entry.value}
        advice = f"write {successor.rpartition('.')[2]}={format_value(entry.value)}"
    else:
        new, advice = {}, "remove it: nothing reads it"
    is_on = entry.value not in (False, None, "auto") and str(entry.value).lower() != "false"
    return Fault(
        field=entry.path,
        message=f"{entry.path}={format_value(entry.value)}: deprecated",
        suggestion=advice if is_on else f"remove {entry.key}",
        fix=Fix(put=new if is_on else {}, drop=drop),
        severity=None if is_on else Severity.NOTE,
    )


def _old_bf16(subject: Subject, entry: Entry) -> Fault:
    if subject.config.get("bf16") is not None:
        return Fault(
            field=entry.path,
            message=f"{_OLD_BF16}: DeepSpeed takes the bf16 section instead",
            suggestion=f"remove {_OLD_BF16}",
            fix=Fix(drop=frozenset({_OLD_BF16})) if _is_off(entry.value) else None,
        )
    is_section = isinstance(entry.value, Mapping)
    return Fault(
        field=entry.path,
        message=f"{_OLD_BF16}: deprecated name of bf16",
        suggestion="write bf16",
        fix=Fix(put={"bf16": entry.value}, drop=frozenset({_OLD_BF16})) if is_section else None,
    )


def _old_zero(subject: Subject, entry: Entry) -> Fault:
    section: dict[str, Any] = {"stage": int(entry.value)}
    drop = frozenset[str]()
    if entry.value and "allgather_size" in subject.config:
        section["allgather_bucket_size"] = subject.config["allgather_size"]
        drop = frozenset({"allgather_size"})
    return Fault(
        field=_ZERO,
        message=f"{_ZERO}={format_value(entry.value)}: deprecated form",
        suggestion=f"write {_ZERO}: {format_value(section)}",
        fix=Fix(put={_ZERO: section}, drop=drop),
    )


def _is_off(value: Any) -> bool:
    """Whether a value switches a feature off, so that leaving it out changes nothing."""
    if isinstance(value, Mapping):
        return value.get("enabled", True) is False
    return value is False or value is None
