"""A whole ds_config inside a program's own config."""

from collections.abc import Mapping
from dataclasses import replace

from autotune.lint.document.reading import Reading

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
