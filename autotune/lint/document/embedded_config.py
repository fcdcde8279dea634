"""A ds_config inside a program's own config, or beside it."""

from collections.abc import Mapping
from dataclasses import replace

from autotune.lint.document.reading import Reading, finding
from autotune.lint.document.reading_rules import ACCELERATE, NOT_READABLE
from autotune.lint.finding import Finding
from autotune.lint.format_value import shown

_NAMES = ("deepspeed", "deepspeed_config", "ds_config")
"""Keys under which programs keep it."""
_SIGN = "zero_optimization"
"""Beside this key a section called `deepspeed` is none."""


def inner_config(reading: Reading) -> Reading:
    """Return the ds_config inside, with its own keys and their places; else what was given."""
    for name in _NAMES:
        if isinstance(reading.value.get(name), Mapping) and _SIGN not in reading.value:
            return _inside(reading, name)
    return reading


def elsewhere(reading: Reading) -> Finding | None:
    """Return what is wrong with a file that starts a run and holds no ds_config; else None.

    An Accelerate config of another kind, and the arguments of a training that name a ds_config.
    """
    value = reading.value
    if _SIGN in value or "train_batch_size" in value or "train_micro_batch_size_per_gpu" in value:
        return None
    kind, named = value.get("distributed_type"), value.get("deepspeed")
    if isinstance(kind, str) and "mixed_precision" in value:
        return finding(
            ACCELERATE,
            f"distributed_type={kind}: accelerate starts a run without DeepSpeed",
            field="distributed_type",
            at=reading.positions.get("distributed_type"),
            suggestion="write DEEPSPEED and a deepspeed_config section, or gate the ds_config",
        )
    if isinstance(named, str):
        return finding(
            NOT_READABLE,
            f"not a ds_config: deepspeed={shown(named)} names it",
            field="deepspeed",
            at=reading.positions.get("deepspeed"),
            suggestion="gate that file; as JSON this one may be given by --hf-args",
        )
    return None


def _inside(reading: Reading, name: str) -> Reading:
    prefix = f"{name}."
    return Reading(
        value=reading.value[name],
        positions={
            key.removeprefix(prefix): place
            for key, place in reading.positions.items()
            if key.startswith(prefix)
        },
        # What is wrong with the program's own part is not for this gate to say.
        findings=tuple(
            replace(found, field=found.field.removeprefix(prefix))
            for found in reading.findings
            if found.field in ("", name) or found.field.startswith(prefix)
        ),
    )
