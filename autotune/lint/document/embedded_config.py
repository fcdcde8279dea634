"""A ds_config inside the config of another program, or named by it."""

from collections.abc import Mapping
from dataclasses import replace

from autotune.lint.document.reading import Reading, finding
from autotune.lint.document.reading_rules import ACCELERATE, NOT_READABLE
from autotune.lint.finding import Finding
from autotune.lint.format_value import format_value

_NAMES = ("deepspeed", "deepspeed_config", "ds_config")
"""Keys under which programs store it."""
_SIGN = "zero_optimization"
"""With this key a section called `deepspeed` is not a ds_config."""


def inner_config(reading: Reading) -> Reading:
    """Return the embedded ds_config, with its keys and their positions; else the reading itself."""
    for name in _NAMES:
        if isinstance(reading.value.get(name), Mapping) and _SIGN not in reading.value:
            return _inside(reading, name)
    return reading


def elsewhere(reading: Reading) -> Finding | None:
    """Return the fault of a file that starts a run and contains no ds_config; else None.

    Such files are Accelerate configs of another kind, and training arguments that name a ds_config.
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
            f"not a ds_config: deepspeed={format_value(named)} names it",
            field="deepspeed",
            at=reading.positions.get("deepspeed"),
            suggestion="gate that file; a JSON file of arguments can be given with --hf-args",
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
        # The program's part of the file is not checked.
        findings=tuple(
            replace(found, field=found.field.removeprefix(prefix))
            for found in reading.findings
            if found.field in ("", name) or found.field.startswith(prefix)
        ),
    )
