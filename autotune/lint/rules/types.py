"""Values of the wrong type, and values outside the limits of their field.

The table of fields lists which kinds of values DeepSpeed's parser refuses. Any other value is
converted (fields of pydantic models) or kept unchanged (all others): then "false" counts as true,
and "8" is compared with a number later.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from autotune.ds_config.fields.convert import converted, intended_value
from autotune.ds_config.fields.kind import Kind, kind_of
from autotune.ds_config.fields.parser_probe import LIMIT
from autotune.ds_config.fields.table import Field, drops_auto
from autotune.ds_config.inert import inert_keys
from autotune.lint.config_entries import Entry
from autotune.lint.finding import Fix, RefusedBy, Severity
from autotune.lint.format_value import format_value
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_NUMBERS = frozenset((Kind.BIT, Kind.INTEGER, Kind.WHOLE))
_STRINGS = frozenset(
    (Kind.EMPTY, Kind.TEXT, Kind.BOOL_TEXT, Kind.BIT_TEXT, Kind.INTEGER_TEXT, Kind.NUMBER_TEXT)
)
_LISTS = frozenset((Kind.TEXTS, Kind.OTHERS))
_RIGHT = {
    "bool": frozenset((Kind.BOOL, Kind.BIT)),
    "int": _NUMBERS | {Kind.HUGE},
    "float": _NUMBERS | {Kind.HUGE, Kind.FRACTION, Kind.NOT_FINITE},
    "str": _STRINGS,
    "list": _LISTS,
    "dict": frozenset((Kind.SECTION,)),
    "section": frozenset((Kind.SECTION,)),
    "any": frozenset(Kind),
}
_EXPECTED = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "list": "a list",
    "dict": "a section",
    "section": "a section",
}
_ZERO = "zero_optimization"
_BATCH_SIZES = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)
_EXAMPLES = {
    "zero_optimization": '{"stage": 2}',
    "zero_optimization.offload_optimizer": '{"device": "cpu"}',
    "zero_optimization.offload_param": '{"device": "cpu"}',
    "fp16": '{"enabled": true}',
    "bf16": '{"enabled": true}',
    "optimizer": '{"type": "AdamW", "params": {"lr": 1e-5}}',
    "scheduler": '{"type": "WarmupLR", "params": {}}',
}


@rule("type", Severity.ERROR, refused_by=RefusedBy.PARSE)
def type_(subject: Subject) -> Iterator[Fault]:
    """A value has the wrong type for its field.

    DeepSpeed's pydantic sections (`zero_optimization`, `fp16`, `bf16`, `tensorboard` and the like)
    refuse a fraction or "5e8" where an integer is expected, and a string or a boolean where a
    section is expected (`runtime/config_utils.py: DeepSpeedConfigModel`). They convert "5" to 5 and
    "true" to true silently: that is a warning.

    Everything else is kept unchanged (`get_scalar_param`): batch sizes given as strings are refused
    while they are compared (`runtime/config.py: _configure_train_batch_size`), other numbers given
    as strings fail when they are first used, and a switch with the string "false" is on, because a
    string that is not empty is true.

    Suggestion: write numbers, true and false without quotes, and sections in braces. A whole number
    may be written as a float: DeepSpeed accepts 5e8 as an integer.
    """
    inert: frozenset[str] | None = None
    for entry in subject.entries:
        fault = _type_fault(entry)
        if fault is None or (entry.path == "optimizer.params" and not _names_optimizer(subject)):
            continue
        if fault.severity is None and fault.refused_by is not None:
            # Kept unchanged, and possibly never used.
            inert = inert if inert is not None else frozenset(inert_keys(subject.flat))
            if entry.path in inert:
                yield replace(fault, severity=Severity.WARNING)
                continue
        yield fault


@rule("limit", Severity.ERROR, refused_by=RefusedBy.PARSE)
def limit(subject: Subject) -> Iterator[Fault]:
    """A value is outside the limits of its field, or not one of its choices.

    DeepSpeed's pydantic models check most limits while it reads the config, such as a
    `reduce_bucket_size` above 0 and the ZeRO stages 0 to 3 (`runtime/zero/config.py`); others take
    effect only when the value is used.

    A list of stages is for DeepSpeed's autotuner only.

    Suggestion: the message lists the allowed values.
    """
    for entry in subject.entries:
        fault = _limit_fault(entry)
        if fault is None or entry.field is None:
            continue
        yield Fault(
            field=entry.path,
            message=f"{entry.path}={format_value(entry.value)}: {fault}",
            suggestion=_nearest_choice(entry.field, entry.value),
            refused_by=RefusedBy.PARSE if _is_held(entry.field) else RefusedBy.INIT,
        )


RULES = (type_, limit)


def _is_refused(entry: Entry, field: Field, kind: Kind) -> bool:
    if not field.validated and field.type == "str" and Kind.EMPTY.value in field.refuses:
        return not entry.value  # Any value that is not empty is accepted: `autotuning.exps_dir`.
    return kind.value in field.refuses


def _names_optimizer(subject: Subject) -> bool:
    # Without a type its params are not read.
    return subject.value("optimizer.type") is not None


def _type_fault(entry: Entry) -> Fault | None:
    field = entry.field
    if field is None or field.removed or (entry.value == "auto" and not _is_read_as_section(entry)):
        return None
    if field.key == _ZERO and isinstance(entry.value, bool):
        return None  # The old form of the section: the deprecated rule reports it.
    kind = kind_of(entry.value)
    if _is_refused(entry, field, kind):
        # The limit rule reports a value that is not one of the choices.
        has_other_rule = field.choices or _limit_fault(entry)
        return None if has_other_rule else _refused(entry, field, kind)
    if kind in _RIGHT[field.type] or _is_default(entry, field) or _is_missing(entry):
        return None
    if _limit_fault(entry) or field.deprecated:
        return None
    return _converted_quietly(entry, field) if field.validated else _kept(entry, field, kind)


def _limit_fault(entry: Entry) -> str | None:
    field, value = entry.field, entry.value
    if field is None or value == "auto" or (value is None and "null" not in field.refuses):
        return None
    if field.key in _BATCH_SIZES and not isinstance(value, bool):
        return None  # `batch-arithmetic` checks the three together.
    if value is None and field.choices:
        return f"must be one of {', '.join(map(str, field.choices))}"
    if field.type == "int" and not field.choices and kind_of(value) is Kind.FRACTION:
        return None  # The type rule reports it.
    if field.items and isinstance(value, list):
        wrong = [item for item in value if item not in field.items]
        return f"must hold only {', '.join(map(str, field.items))}" if wrong else None
    return field.limit_fault(converted(field, value))


def _is_held(field: Field) -> bool:
    """Whether DeepSpeed checks a field's limits while it reads the config."""
    return LIMIT in field.refuses or bool(field.items)


def _refused(entry: Entry, field: Field, kind: Kind) -> Fault:
    what = f"must be {_expected(field, kind)}, not {kind.phrase}"
    if _RIGHT[field.type] - {Kind.NULL, Kind.HUGE} <= set(field.refuses):
        what = "must be left out: DeepSpeed accepts no JSON value here"
        return Fault(field=entry.path, message=f"{entry.path}={format_value(entry.value)}: {what}")
    if kind is Kind.NOT_FINITE:
        what = "must be a finite number"
    return Fault(
        field=entry.path,
        message=f"{entry.path}={format_value(entry.value)}: {what}",
        suggestion=_suggestion(entry, field),
        fix=_fix(entry, intended_value(field, entry.value)),
    )


def _expected(field: Field, kind: Kind) -> str:
    if field.type == "list" and kind is Kind.OTHERS:
        return "a list of strings"
    return _EXPECTED.get(field.type, "of another type")


def _converted_quietly(entry: Entry, field: Field) -> Fault | None:
    if field.type == "list":
        return None  # DeepSpeed accepts it as a list of one (`leaf_module_config.py`).
    value = converted(field, entry.value)
    return Fault(
        field=entry.path,
        message=(
            f"{entry.path}={format_value(entry.value)}: should be {_EXPECTED[field.type]}; "
            f"DeepSpeed reads it as {format_value(value)}"
        ),
        suggestion=f"write {format_value(value)}",
        fix=_fix(entry, value),
        severity=Severity.WARNING,
    )


def _kept(entry: Entry, field: Field, kind: Kind) -> Fault:
    """Return the fault of a value that DeepSpeed stores unchanged."""
    right = intended_value(field, entry.value)
    comes, severity, refused_by = _effect(entry, field, right)
    return Fault(
        field=entry.path,
        message=(
            f"{entry.path}={format_value(entry.value)}: must be {_EXPECTED[field.type]}, "
            f"not {kind.phrase}{comes}"
        ),
        suggestion=_suggestion(entry, field),
        fix=_fix(entry, right),
        severity=severity,
        refused_by=refused_by,
    )


def _effect(entry: Entry, field: Field, right: Any) -> tuple[str, Severity | None, RefusedBy]:
    """Return the effect of a value that DeepSpeed stores unchanged, and its severity."""
    value = entry.value
    if field.type == "bool":
        counts = bool(value)
        is_opposite = right is not None and right != counts
        severity = Severity.ERROR if is_opposite else Severity.WARNING
        return f"; it counts as {format_value(counts)}", severity, RefusedBy.NOTHING
    if field.type == "section":
        return "", Severity.ERROR if value else Severity.WARNING, RefusedBy.NOTHING
    if isinstance(value, bool) and field.type in ("int", "float"):
        return f"; it counts as {int(value)}", Severity.WARNING, RefusedBy.NOTHING
    # Null is compared with a number, at least where that is a float.
    mild = field.type in ("str", "list") or (value is None and field.type == "int")
    worst = Severity.WARNING if mild else None
    return "; DeepSpeed keeps it unchanged and fails where it is used", worst, RefusedBy.INIT


def _is_default(entry: Entry, field: Field) -> bool:
    # True and 1.0 are different here.
    return entry.value == field.default and kind_of(entry.value) is kind_of(field.default)


def _is_missing(entry: Entry) -> bool:
    """Whether a null has the same effect as a missing key."""
    field = entry.field
    return (
        entry.value is None
        and field is not None
        and Kind.NULL.value not in field.refuses
        and (field.optional or not field.default or field.type in ("section", "dict"))
    )


def _is_read_as_section(entry: Entry) -> bool:
    # Only a pydantic model accepts "auto" for a section.
    return entry.field is not None and entry.field.type == "section" and not drops_auto(entry.path)


def _suggestion(entry: Entry, field: Field) -> str | None:
    right = intended_value(field, entry.value)
    if right is not None:
        return f"write {format_value(right)}"
    if field.key in _EXAMPLES:
        return f"write {_EXAMPLES[field.key]}"
    if field.type == "int" and kind_of(entry.value) is Kind.FRACTION:
        return f"write {format_value(round(entry.value))}"
    return "leave it out" if entry.value is None else None


def _nearest_choice(field: Field, value: Any) -> str | None:
    """Return the choice that differs from a value in case or space only."""
    if isinstance(value, str):
        for choice in field.choices:
            if str(choice).lower() == value.strip().lower():
                return f"write {format_value(choice)}"
    return None


def _fix(entry: Entry, value: Any) -> Fix | None:
    return None if value is None or "." in entry.key else Fix(put={entry.path: value})
