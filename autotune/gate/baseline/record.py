"""`record.json`, read back: the numbers that a ds_config was chosen by."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune import dotted
from autotune.ds_config.read import read_ds_config
from autotune.errors import ConfigError, GateError
from autotune.gate.inputs import read_json_mapping
from autotune.study.record import Record

_CONFIG = "ds_config.json"
_NEEDED = ("evaluator", "tokens_per_s.value", "workload", "environment", "model_settings")


def read_record(path: Path) -> Record:
    """Read a record and the ds_config that it stands for.

    Raises:
        GateError: it cannot be read, or lacks what a comparison needs; every fault is named.
    """
    content = read_json_mapping(path, option="--baseline", what="a record of autotune")
    missing = [key for key in _NEEDED if dotted.get(content, key) is None]
    if missing:
        raise GateError(
            f"--baseline {path}: {', '.join(missing)} missing; give the record.json of a study"
        )
    ds_config = content.get("ds_config") or _config_beside(path)
    try:
        return Record.from_json({**content, "ds_config": ds_config}, path=path)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise GateError(
            f"--baseline {path}: not a record of autotune: {type(error).__name__}: {error}"
        ) from error


def _config_beside(path: Path) -> Mapping[str, Any]:
    """Return the ds_config beside a record: older versions did not write it into the record."""
    try:
        return read_ds_config(path.parent / _CONFIG)
    except ConfigError as error:
        raise GateError(
            f"--baseline {path}: holds no ds_config, and there is none beside it: {error}"
        ) from error
