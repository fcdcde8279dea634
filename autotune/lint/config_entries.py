"""Every key of a config with its field, section by section."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.ds_config.fields.table import Field, field_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A key of a config."""

    path: str
    """Dotted, as the file spells it."""
    section: str
    """The path above it; empty at the top level."""
    key: str
    """The last part of the path, which may contain dots."""
    value: Any
    field: Field | None
    """None if DeepSpeed has no such field."""


def entries(config: Mapping[str, Any], section: str = "") -> Iterator[Entry]:
    """Yield the keys of a config in sections that DeepSpeed has.

    Nothing is yielded below an open section (`optimizer.params`) or an unknown one: keys there have
    no fields.
    """
    for key, value in config.items():
        path = f"{section}.{key}" if section else str(key)
        # A key may be any string: `"zero_optimization.stage"` at the top level is not a field.
        field = None if "." in str(key) else field_of(path)
        yield Entry(path=path, section=section, key=str(key), value=value, field=field)
        if field is not None and field.type == "section" and isinstance(value, Mapping):
            yield from entries(value, path)
