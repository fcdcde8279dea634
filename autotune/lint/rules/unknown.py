"""Keys that DeepSpeed does not know, at every level."""

from collections.abc import Iterator, Mapping
from typing import Any

from autotune.ds_config.fields.key_suggestions import homes, misspelt, section_like
from autotune.ds_config.fields.table import documented_key, field_of, known_fields
from autotune.ds_config.inert import inert_keys
from autotune.lint.config_entries import Entry
from autotune.lint.document.comment_keys import is_comment
from autotune.lint.finding import Fix, RefusedBy, Severity
from autotune.lint.format_value import format_value
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_REMARKS = frozenset(
    ("comment", "comments", "description", "doc", "help", "note", "notes", "readme", "remarks")
)
_OWN_WORDS = frozenset(
    (
        "activation",
        "allgather",
        "bf16",
        "bucket",
        "checkpointing",
        "comm",
        "communication",
        "deepspeed",
        "fp16",
        "gradient",
        "gradients",
        "memory",
        "offload",
        "offloading",
        "optimizer",
        "parallel",
        "parallelism",
        "partition",
        "partitioning",
        "pipeline",
        "precision",
        "quantization",
        "quantized",
        "reduce",
        "scheduler",
        "sharding",
        "zero",
        "zero3",
        "zeropp",
    )
)
"""Terms of DeepSpeed: a block with such a name does not belong to the program."""
_OLD_NAMES = {
    "max_grad_norm": "gradient_clipping",
    "fp32_allreduce": 'communication_data_type: "fp32"',
    "aio.thread_count": "intra_op_parallelism",
}
"""Keys that earlier DeepSpeed versions read and this one ignores."""
_OTHER_PROGRAMS = {
    "accumulate_grad_batches": "gradient_accumulation_steps",
    "batch_size": "train_batch_size, or train_micro_batch_size_per_gpu for one rank",
    "clip_grad": "gradient_clipping",
    "clip_grad_norm": "gradient_clipping",
    "global_batch_size": "train_batch_size",
    "grad_clip": "gradient_clipping",
    "gradient_clip_val": "gradient_clipping",
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "per_device_train_batch_size": "train_micro_batch_size_per_gpu",
}
"""Names that Lightning, the Trainer and Megatron use for a key of the top level."""
_DISTINCT = ("zero_optimization.", "fp16.", "bf16.", "activation_checkpointing.")
"""A key that belongs to one of these is DeepSpeed's; `num_epochs` may be the program's."""
_ARGUMENTS = frozenset(("optimizer", "scheduler"))
"""Plain sections in which a stray key is an argument in the wrong place."""
_TRAINING = ("aio", "data_types", "expert_parallel", "torch_autocast", "data_efficiency")
"""Plain sections that change what is computed, not what is logged."""


@rule("unknown-key", Severity.ERROR)
def unknown_key(subject: Subject) -> Iterator[Fault]:
    """DeepSpeed has no such key.

    In a section that is a pydantic model (`zero_optimization` and what is in it, `fp16`, `bf16`,
    `tensorboard`, `compile` and the like) DeepSpeed refuses it (`runtime/config_utils.py:
    DeepSpeedConfigModel`, `extra="forbid"`). At the top level, and in the sections that plain
    functions read (`optimizer`, `aio`, `activation_checkpointing`, ...), it silently ignores the
    key: with `zero_optimisation` the run trains without ZeRO.

    So a key is an error where DeepSpeed refuses it, where it is a misspelling of a key that exists,
    where it is a key in the wrong place, and where it is a whole block about a feature of
    DeepSpeed. Other keys at the top level may be the program's: a warning. Old keys in plain
    sections, such as `aio.thread_count`, are notes. A key with the value "auto" is dropped before
    DeepSpeed checks its name. `_comment`, `//` and the like are comments, and harmless where
    DeepSpeed ignores them.

    Suggestion: the message names the key that is probably intended; else remove the key.
    """
    for entry in subject.entries:
        if entry.field is not None or (subject.form == "neox" and not entry.section):
            continue
        above = field_of(entry.section) if entry.section else None
        if above is not None and above.validated and entry.value != "auto":
            yield _refused(subject, entry)
        elif not is_comment(entry.key) and entry.key.lower() not in _REMARKS:
            yield _ignored(subject, entry)
        else:
            yield Fault(
                field=entry.path,
                message=f"{entry.path}: a comment; DeepSpeed ignores it",
                severity=Severity.NOTE,
            )


@rule("key-given-twice", Severity.ERROR, refused_by=RefusedBy.PARSE)
def key_given_twice(subject: Subject) -> Iterator[Fault]:
    """A field is set under both of its names.

    Several fields of ZeRO 3 have two names, `stage3_max_live_parameters` and `max_live_parameters`.
    DeepSpeed accepts either, and refuses both together: the shorter one is then an unknown key
    (pydantic's `populate_by_name`).

    Suggestion: keep one of them.
    """
    seen: dict[str, Entry] = {}
    for entry in subject.entries:
        if entry.field is None or not entry.field.validated or entry.value == "auto":
            continue
        name = documented_key(entry.path)
        first = seen.setdefault(name, entry)
        if first is entry or first.section != entry.section:
            continue
        short, long = sorted((first, entry), key=lambda e: e.path == name)
        yield Fault(
            field=short.path,
            message=f"{short.path}={format_value(short.value)}: also set as {long.key}",
            suggestion=f"keep {long.key}={format_value(long.value)}",
            fix=Fix(drop=frozenset({short.path})) if short.value == long.value else None,
        )


RULES = (unknown_key, key_given_twice)


def _refused(subject: Subject, entry: Entry) -> Fault:
    """Return the fault of an unknown key in a section that refuses unknown keys."""
    right = misspelt(entry.section, entry.key)
    suggestion, fix = _suggestion(subject, entry, right)
    if right is None and documented_key(entry.section) == "bf16" and field_of(f"fp16.{entry.key}"):
        suggestion = "remove it: bf16 needs no loss scaling"
        fix = Fix(drop=frozenset({entry.path}))
    elif is_comment(entry.key):
        suggestion, fix = "move the comment to the top level", Fix(drop=frozenset({entry.path}))
    return Fault(
        field=entry.path,
        message=f"{entry.path}: no such key; DeepSpeed refuses unknown keys in {entry.section}",
        suggestion=suggestion,
        fix=fix if "." not in entry.key else None,
        refused_by=RefusedBy.PARSE,
    )


def _ignored(subject: Subject, entry: Entry) -> Fault:
    """Return the fault of a key that DeepSpeed ignores."""
    right = misspelt(entry.section, entry.key)
    suggestion, fix = _suggestion(subject, entry, right)
    return Fault(
        field=entry.path,
        message=f"{entry.path}: no such key; DeepSpeed ignores it silently",
        suggestion=suggestion,
        fix=fix if "." not in entry.key else None,
        severity=_severity(subject, entry, right),
        refused_by=RefusedBy.NOTHING,
    )


def _suggestion(subject: Subject, entry: Entry, right: str | None) -> tuple[str, Fix | None]:
    if _is_dotted(entry):
        return f"DeepSpeed does not read dotted keys: nest {entry.key.replace('.', ' > ')}", None
    if right is not None:
        path = f"{entry.section}.{right}" if entry.section else right
        suggestion = f"write {right}"
        is_free = path not in subject.flat and subject.section(path) is None
        fix = Fix(put={path: entry.value}, drop=frozenset({entry.path})) if is_free else None
        return suggestion, fix
    if entry.path in _OLD_NAMES:
        return f"write {_OLD_NAMES[entry.path]}", None
    if entry.path in _OTHER_PROGRAMS:
        return f"if it is meant for DeepSpeed, write {_OTHER_PROGRAMS[entry.path]}", None
    places = _homes(entry)
    if entry.section in _ARGUMENTS and not _distinct(places):
        return f"move it into {entry.section}.params", None
    if places:
        return f"it belongs at {' or '.join(places[:2])}", None
    if like := _like(entry.value):
        return f"it looks like {like}", None
    return "remove it", None


def _severity(subject: Subject, entry: Entry, right: str | None) -> Severity:
    places = _distinct(_homes(entry))
    if entry.section in _ARGUMENTS and not places:
        return _argument_severity(subject, entry, right)
    if entry.section and entry.section not in _ARGUMENTS:
        return _plain_section_severity(entry, right)
    if right is not None or _is_dotted(entry):
        return Severity.ERROR
    if places:
        acts = any(_would_act(subject, entry, place) for place in places)
        return Severity.ERROR if acts else Severity.WARNING
    is_own = not _OWN_WORDS.isdisjoint(entry.key.lower().split("_"))
    if isinstance(entry.value, Mapping) and (is_own or _like(entry.value)):
        return Severity.ERROR
    return Severity.WARNING


def _plain_section_severity(entry: Entry, right: str | None) -> Severity:
    """Return the severity of a key in a section such as `aio`, where templates keep old keys."""
    if right is None:
        return Severity.NOTE
    return Severity.ERROR if entry.section.split(".")[0] in _TRAINING else Severity.WARNING


def _would_act(subject: Subject, entry: Entry, place: str) -> bool:
    """Whether a key would change the run if it were in the right place."""
    if known_fields()[place].default == entry.value:
        return False
    return place not in inert_keys({**subject.flat, place: entry.value})


def _argument_severity(subject: Subject, entry: Entry, right: str | None) -> Severity:
    """Return the severity of an argument that an optimizer or a scheduler does not get.

    A section that also has `params` loses little; without `params` the learning rate is lost.
    """
    params = subject.section(f"{entry.section}.params")
    is_lost = params is None or (entry.key == "lr" and "lr" not in params)
    return Severity.ERROR if is_lost or right is not None else Severity.NOTE


def _homes(entry: Entry) -> tuple[str, ...]:
    """Return where a key, or the key it is a misspelling of, belongs."""
    return tuple(
        place
        for place in homes(entry.key)
        if place != entry.section
        and ("_" in entry.key or "." not in place or place.startswith(_DISTINCT))
    )


def _distinct(places: tuple[str, ...]) -> list[str]:
    """Return the places that certainly belong to DeepSpeed."""
    return [place for place in places if place.startswith(_DISTINCT)]


def _is_dotted(entry: Entry) -> bool:
    return "." in entry.key and field_of(entry.path) is not None


def _like(value: Any) -> str | None:
    return section_like([str(key) for key in value]) if isinstance(value, Mapping) else None
