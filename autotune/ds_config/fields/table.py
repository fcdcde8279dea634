"""Every ds_config field of DeepSpeed, without importing DeepSpeed.

The table is a JSON file per DeepSpeed version, written from the installed source by
`autotune.ds_config.fields.make_table`; `autotune.ds_config.fields.version` selects the one to use.
"""

import difflib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from autotune.ds_config.fields.version import read_table

_TUPLES = ("choices", "items", "aliases", "refuses")
_MONITORS = ("comet", "csv_monitor", "tensorboard", "wandb")
"""`monitor/config.py: get_monitor_config` puts these into one model."""
_SECTION_ALIASES = {"bfloat16": "bf16"}
"""`runtime/precision_config.py: get_bfloat16_config` falls back to the old name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a ds_config, or one of its sections."""

    key: str
    """The dotted name that DeepSpeed documents."""
    type: str
    """bool, int, float, str, list, dict, section, or any."""
    default: Any = None
    """DeepSpeed's default; None where it computes the value."""
    choices: tuple[Any, ...] = ()
    """The allowed values; empty where every value of the type is."""
    items: tuple[Any, ...] = ()
    """The allowed values in a list; empty where every value is."""
    any_case: bool = False
    """Whether the choices may be written in any case."""
    minimum: float | None = None
    above: float | None = None
    """The value must be greater than this."""
    maximum: float | None = None
    below: float | None = None
    """The value must be less than this."""
    optional: bool = False
    """Whether null is allowed."""
    aliases: tuple[str, ...] = ()
    """Other dotted names that DeepSpeed accepts."""
    deprecated: bool = False
    successor: str | None = None
    """What to write instead of a deprecated field."""
    open: bool = False
    """Whether it may have any keys, as `optimizer.params` does."""
    removed: str | None = None
    """DeepSpeed's message when it refuses a field that it used to have."""
    validated: bool = False
    """Whether a pydantic model reads it: strings are converted, and a section refuses unknown keys.
    Other fields are stored unchanged."""
    refuses: tuple[str, ...] = ()
    """Kinds of values (`autotune.ds_config.fields.kind`) for which DeepSpeed refuses the config
    when it reads it; with `limit` it does so for a value outside the field's limits too."""

    def limit_fault(self, value: Any) -> str | None:
        """Return the limit that a value breaks; None if it is within them, whatever its type.

        Example:
            >>> Field(key="bucket", type="int", minimum=0).limit_fault(-1)
            'must be at least 0'
        """
        if value is None and self.default is None:
            return None
        if self.choices and not self._is_choice(value):
            return f"must be one of {', '.join(map(str, self.choices))}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if self.minimum is not None and value < self.minimum:
            return f"must be at least {self.minimum}"
        if self.above is not None and value <= self.above:
            return f"must be more than {self.above}"
        if self.maximum is not None and value > self.maximum:
            return f"must be at most {self.maximum}"
        if self.below is not None and value >= self.below:
            return f"must be less than {self.below}"
        return None

    def _is_choice(self, value: Any) -> bool:
        if self.any_case and isinstance(value, str):
            return value.lower() in [str(choice).lower() for choice in self.choices]
        return value in self.choices


@cache
def known_fields() -> Mapping[str, Field]:
    """Return the fields by documented dotted name, for the installed DeepSpeed or the nearest."""
    table = read_table()
    fields = {
        key: Field(
            key=key,
            **record
            | {
                name: tuple(record[name])
                for name in ("choices", "aliases", "refuses")
                if name in record
            },
        )
        for key, record in table["fields"].items()
    }
    return MappingProxyType(fields)


@cache
def documented_key(key: str) -> str:
    """Return the name that DeepSpeed documents for a dotted key; an unknown key is unchanged.

    Example:
        >>> documented_key("zero_optimization.prefetch_bucket_size")
        'zero_optimization.stage3_prefetch_bucket_size'
        >>> documented_key("bfloat16.enabled")
        'bf16.enabled'
    """
    section, dot, rest = key.partition(".")
    key = _SECTION_ALIASES.get(section, section) + dot + rest
    aliases = _aliases()
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        head = ".".join(parts[:length])
        if head in aliases:
            return ".".join([aliases[head], *parts[length:]])
    return key


def field_of(key: str) -> Field | None:
    """Return the field of a dotted key, by any of its names; None if DeepSpeed has none.

    A key below an open section, such as `optimizer.params.lr`, is known and of type `any`.
    """
    key = documented_key(key)
    fields = known_fields()
    if key in fields:
        return fields[key]
    parts = key.split(".")
    for length in range(len(parts) - 1, 0, -1):
        above = fields.get(".".join(parts[:length]))
        if above is not None:
            return Field(key=key, type="any") if above.open else None
    return None


def drops_auto(key: str) -> bool:
    """Whether DeepSpeed drops a dotted key whose value is "auto", and uses its default.

    Pydantic models do so for their fields (`runtime/config_utils.py: DeepSpeedConfigModel`).

    Example:
        >>> drops_auto("zero_optimization.offload_param"), drops_auto("zero_optimization")
        (True, False)
    """
    if "." not in key:
        return key in _MONITORS
    above = field_of(key.rpartition(".")[0])
    return above is not None and above.validated


def default_of(key: str) -> Any:
    """Return DeepSpeed's default of a field.

    Raises:
        KeyError: DeepSpeed has no such field.

    Example:
        >>> default_of("zero_optimization.reduce_bucket_size")
        500000000
    """
    field = field_of(key)
    if field is None:
        raise KeyError(key)
    return field.default


def nearest(key: str, *, limit: int = 3) -> tuple[str, ...]:
    """Return the known fields with the names nearest to an unknown key, best first.

    Example:
        >>> nearest("zero_optimization.reduce_bucket_sise", limit=1)
        ('zero_optimization.reduce_bucket_size',)
        >>> nearest("overlap_com", limit=1)
        ('zero_optimization.overlap_comm',)
    """
    names = _settable_names()
    leaf = key.rsplit(".", 1)[-1]
    leaves: dict[str, list[str]] = {}
    for name in names:
        leaves.setdefault(name.rsplit(".", 1)[-1], []).append(name)
    # The right name in the wrong section is the most common mistake, so last parts come first.
    by_leaf = [
        name
        for match in difflib.get_close_matches(leaf, leaves, n=limit, cutoff=0.8)
        for name in sorted(leaves[match], key=lambda n: -_likeness(key, n))
    ]
    by_name = difflib.get_close_matches(key, names, n=limit, cutoff=0.7)
    found = sorted(dict.fromkeys(by_name + by_leaf), key=lambda n: -_likeness(key, n))
    return tuple(dict.fromkeys(documented_key(name) for name in found))[:limit]


def _likeness(left: str, right: str) -> float:
    return difflib.SequenceMatcher(None, left, right).ratio()


@cache
def _settable_names() -> tuple[str, ...]:
    return tuple(
        name
        for field in known_fields().values()
        if field.type != "section" and not field.removed and not field.deprecated
        for name in (field.key, *field.aliases)
    )


@cache
def _aliases() -> Mapping[str, str]:
    return {alias: field.key for field in known_fields().values() for alias in field.aliases}


def main() -> None:
    """Print every field that a config may have: name, type and default."""
    for key, field in known_fields().items():
        if field.type != "section" and not field.removed and not field.deprecated:
            sys.stdout.write(f"{key}  {field.type}  {json.dumps(field.default)}\n")


if __name__ == "__main__":
    main()
