"""Reading a ds_config the way DeepSpeed reads it."""

from pathlib import Path
from typing import Any

import hjson

from autotune.errors import ConfigError


def read_ds_config(path: Path) -> dict[str, Any]:
    """Read a ds_config file with hjson, DeepSpeed's own reader.

    Comments and trailing commas pass; a key given twice in one section does not, as in DeepSpeed.

    Raises:
        ConfigError: no such file, not readable, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not readable: {error}") from error
    try:
        config = hjson.loads(text, object_pairs_hook=_unique_keys)
    except hjson.HjsonDecodeError as error:
        raise ConfigError(
            f"{path}: line {error.lineno}, column {error.colno}: {error.msg}; "
            "DeepSpeed reads JSON and Hjson"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(config, dict) or not config:
        raise ConfigError(f"{path}: holds no ds_config, but {_kind(config)}")
    return config


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    section: dict[str, Any] = {}
    for key, value in pairs:
        if key in section:
            raise ValueError(f"key {key!r} is given twice in one section; DeepSpeed refuses that")
        section[key] = value
    return section


def _kind(value: object) -> str:
    return "an empty mapping" if value == {} else f"a {type(value).__name__}"
