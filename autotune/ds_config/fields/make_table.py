"""Writes the table of the installed DeepSpeed's ds_config fields.

Run as `python -m autotune.ds_config.fields.make_table`; it replaces `fields_deepspeed_VERSION.json`
next to this file. DeepSpeed has two kinds of fields: those of its pydantic models, whose types,
defaults and bounds are read from the models, and those that plain functions read from the dict,
which are found by passing them a dict that records the keys they read. Which kinds of values the
parser refuses in a field is found by passing it values of each kind.
"""

import enum
import json
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.ds_config.fields.parser_facts import DTYPE, MODELS, PLAIN, SECTIONS, Record
from autotune.ds_config.fields.parser_probe import refused_kinds


class Recorder(dict[str, Any]):
    """An empty dict that records the keys and defaults that are read."""

    def __init__(self, fields: dict[str, Record], prefix: str = "") -> None:
        super().__init__()
        self._fields = fields
        self._prefix = prefix

    def __bool__(self) -> bool:
        return True

    def __copy__(self) -> "Recorder":
        return self

    def __contains__(self, key: object) -> bool:
        return key in SECTIONS

    def keys(self) -> Any:
        """Return itself, so that `key in config.keys()` is recorded too."""
        return self

    def __getitem__(self, key: str) -> Any:
        if dict.__contains__(self, key):
            return super().__getitem__(key)
        if key in SECTIONS:
            name = self._prefix + key
            self._fields.setdefault(name, {"type": "section"})
            return Recorder(self._fields, f"{name}.")
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Record a plain key with its default; enter a section."""
        if key in SECTIONS or dict.__contains__(self, key):
            return self[key]
        self._fields.setdefault(
            self._prefix + key, {"type": _type_of_default(default), "default": default}
        )
        return default

    def pop(self, key: str, *default: Any) -> Any:
        """Answer like an empty dict that has every key."""
        return default[0] if default else None

    def copy(self) -> "Recorder":
        """Return itself: what a copy records would be lost."""
        return self


def make_table() -> dict[str, Any]:
    """Return the table: DeepSpeed's version and its fields by dotted name."""
    import deepspeed  # noqa: TID251  the generator's only import of it

    fields: dict[str, Record] = {}
    for name, record in _plain_fields():
        fields[name] = record
    for section, path in MODELS.items():
        fields[section] = {"type": "section", "validated": True}
        fields.update(_model_fields(_load(path), f"{section}."))
    for name, corrections in PLAIN.items():
        fields[name] = {"default": None} | fields.get(name, {}) | corrections
        if corrections is DTYPE:
            fields[name]["choices"] = _dtype_names()
    _be_one_rank()
    for name, record in fields.items():
        record["refuses"] = refused_kinds(name, record, _accepts)
    for name, message in _removed_keys():
        fields[name] = {"type": "any", "removed": message}
    return {
        "deepspeed": deepspeed.__version__.split("+")[0],
        "fields": {name: _plain(fields[name]) for name in sorted(fields)},
    }


def _be_one_rank() -> None:
    """Form a world of one rank: without one the parser skips the checks of ranks."""
    from deepspeed import comm  # noqa: TID251

    comm.get_rank = lambda *_args: 0
    comm.get_world_size = lambda *_args: 1


def _accepts(config: dict[str, Any]) -> bool:
    """Whether DeepSpeed's parser accepts a config, on one rank."""
    from deepspeed.runtime.config import DeepSpeedConfig  # noqa: TID251

    try:
        DeepSpeedConfig(config)
    except Exception:  # noqa: BLE001  any exception is a refusal
        return False
    return True


def _plain_fields() -> Iterator[tuple[str, Record]]:
    """Yield the fields that DeepSpeed's parser reads from the dict."""
    from deepspeed.runtime.config import (  # noqa: TID251
        DeepSpeedConfig,
        get_pipeline_config,
    )

    fields: dict[str, Record] = {}
    config = DeepSpeedConfig.__new__(DeepSpeedConfig)
    config._initialize_params(Recorder(fields))
    for name, record in fields.items():
        # Sections of models are read with an empty dict as their default.
        if record.get("default") == {} and name in {path.split(".")[0] for path in MODELS}:
            continue
        if name == "bfloat16":
            continue
        yield name, record
    for name, default in get_pipeline_config({}).items():
        yield f"pipeline.{name}", {"type": _type_of_default(default), "default": default}


def _dtype_names() -> list[str]:
    from deepspeed.runtime.config import DtypeEnum  # noqa: TID251

    return [name for member in DtypeEnum for name in member._all_values if isinstance(name, str)]


def _removed_keys() -> Iterator[tuple[str, str]]:
    from deepspeed.runtime import config  # noqa: TID251

    yield from config._REMOVED_TOP_LEVEL_CONFIG_KEYS.items()
    for key, message in config._REMOVED_ZERO_CONFIG_KEYS.items():
        yield f"zero_optimization.{key}", message


def _model_fields(model: Any, prefix: str) -> dict[str, Record]:
    """Return the fields of a pydantic model, and of the models in it, by dotted name."""
    fields: dict[str, Record] = {}
    for python_name, info in model.model_fields.items():
        # The alias is the name that DeepSpeed documents; it accepts both.
        documented = info.alias or python_name
        record = _annotation(info.annotation)
        inner = record.pop("model", None)
        record["default"] = info.get_default(call_default_factory=True)
        record["validated"] = True
        record |= _bounds(info.metadata)
        if info.alias:
            record["aliases"] = [prefix + python_name]
        extra = info.json_schema_extra or {}
        if extra.get("deprecated"):
            record["deprecated"] = True
            # "a or b" is advice to a reader, not one field.
            new = extra.get("new_param", "")
            successors = [f"{prefix}{_documented(model, name)}" for name in new.split(" or ")]
            record["successor"] = " or ".join(successors)
        fields[prefix + documented] = record
        if inner is not None:
            record["type"] = "section"
            record["default"] = None
            fields.update(_model_fields(inner, f"{prefix}{documented}."))
    return fields


def _documented(model: Any, python_name: str) -> str:
    info = model.model_fields.get(python_name)
    return info.alias if info and info.alias else python_name


def _annotation(annotation: Any) -> Record:
    """Translate a type annotation to our type names."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        kinds = [a for a in arguments if a is not type(None)]
        record = _annotation(kinds[0]) if len(kinds) == 1 else {"type": "any"}
        return record | ({"optional": True} if type(None) in arguments else {})
    if origin is typing.Literal:
        return {"type": "str", "choices": list(arguments)}
    if origin is list and typing.get_origin(arguments[0]) is typing.Literal:
        return {"type": "list", "items": list(typing.get_args(arguments[0]))}
    kind = origin or annotation
    return _class(kind) if isinstance(kind, type) else {"type": "any"}


def _class(kind: type) -> Record:
    if issubclass(kind, enum.Enum):
        values = list(dict.fromkeys(member.value for member in kind))
        return {"type": _type_of_default(values[0]), "choices": values}
    if hasattr(kind, "model_fields"):
        return {"type": "section", "model": kind}
    if issubclass(kind, dict):
        return {"type": "dict", "open": True}
    if issubclass(kind, list | tuple):
        return {"type": "list"}
    for plain, name in ((bool, "bool"), (int, "int"), (float, "float"), (str | Path, "str")):
        if issubclass(kind, plain):
            return {"type": name}
    return {"type": "any"}


def _bounds(metadata: list[Any]) -> Record:
    names = {"ge": "minimum", "gt": "above", "le": "maximum", "lt": "below"}
    return {
        ours: getattr(constraint, theirs)
        for constraint in metadata
        for theirs, ours in names.items()
        if getattr(constraint, theirs, None) is not None
    }


def _type_of_default(default: Any) -> str:
    if default is None:
        return "any"
    for kind, name in ((bool, "bool"), (int, "int"), (float, "float"), (str, "str")):
        if isinstance(default, kind):
            return name
    return "dict" if isinstance(default, Mapping) else "list"


def _plain(value: Any) -> Any:
    """Return JSON values: DeepSpeed's defaults contain its own int and enum classes, and paths."""
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value)


def _load(path: str) -> Any:
    module, name = path.rsplit(".", 1)
    __import__(module)
    return getattr(sys.modules[module], name)


def written(table: Mapping[str, Any]) -> str:
    """Return the text of a table's file: one line per field, to keep diffs readable."""
    lines = (
        f"  {json.dumps(name)}: {json.dumps(field)}" for name, field in table["fields"].items()
    )
    return (
        f'{{\n "deepspeed": {json.dumps(table["deepspeed"])},\n "fields": {{\n'
        + ",\n".join(lines)
        + "\n }\n}\n"
    )


def main() -> None:
    """Write the table next to this file, or into the given folder."""
    table = make_table()
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    path = folder / f"fields_deepspeed_{table['deepspeed']}.json"
    path.write_text(written(table), encoding="utf-8")


if __name__ == "__main__":
    main()
