"""Identity of runs: two ds_configs that lead to the same run have the same identity."""

import json
from collections.abc import Mapping
from typing import Any

from autotune import dotted
from autotune.ds_config.fields.table import field_of
from autotune.ds_config.inert import inert_keys
from autotune.ds_config.key_aliases import documented

_BATCH = "train_batch_size"
_MICRO_BATCH = "train_micro_batch_size_per_gpu"
_ACCUMULATION = "gradient_accumulation_steps"
_ZENFLOW = "zero_optimization.zenflow"


def identity(
    ds_config: Mapping[str, Any], model_settings: Mapping[str, Any], *, world_size: int
) -> str:
    """Return a canonical JSON text that equal runs share.

    Keys that cannot act, keys that equal DeepSpeed's default, the spelling of a key, and which two
    of the three batch sizes are given make no difference.

    Args:
        ds_config: a whole ds_config.
        model_settings: the trial's settings of the model, without the `model.` prefix.
        world_size: data-parallel ranks.

    Example:
        >>> identity({"zero_optimization": {"stage": 0, "sub_group_size": 7}}, {}, world_size=2)
        '{"ds_config":{},"model":{}}'
    """
    flat = dotted.flatten(ds_config)
    inert = inert_keys(flat, world_size=world_size)
    acting = documented({key: value for key, value in flat.items() if key not in inert})
    acting |= _batch_sizes(acting, world_size)
    kept = {key: _plain(v) for key, v in acting.items() if not _is_default(key, v, acting)}
    model = {key: _plain(v) for key, v in model_settings.items() if v is not False}
    return json.dumps({"ds_config": kept, "model": model}, sort_keys=True, separators=(",", ":"))


def _batch_sizes(flat: Mapping[str, Any], world_size: int) -> dict[str, int]:
    """Return the three batch sizes as DeepSpeed completes them.

    See `runtime/config.py: _set_batch_related_parameters`.
    """
    given = {k: flat[k] for k in (_BATCH, _MICRO_BATCH, _ACCUMULATION) if flat.get(k) is not None}
    if not all(isinstance(size, int) and size > 0 for size in given.values()):
        return {}  # DeepSpeed refuses it
    batch, micro = given.get(_BATCH), given.get(_MICRO_BATCH)
    accumulation: int = given.get(_ACCUMULATION, 1)
    if batch is None:
        if micro is None:
            return {}
        return {_BATCH: micro * accumulation * world_size, _ACCUMULATION: accumulation}
    if micro is None:
        return {_MICRO_BATCH: batch // world_size // accumulation, _ACCUMULATION: accumulation}
    return {_ACCUMULATION: given.get(_ACCUMULATION, batch // micro // world_size)}


def _is_default(key: str, value: Any, flat: Mapping[str, Any]) -> bool:
    if key == _ZENFLOW or key.startswith(f"{_ZENFLOW}."):
        # The presence of the section switches ZenFlow on, so none of it may be removed.
        return value is None
    field = field_of(key)
    if field is None:
        return False
    if key == "zero_optimization.overlap_comm" and value is not None:
        # runtime/zero/config.py: overlap_comm_valid
        return bool(value) == bool(flat.get("zero_optimization.stage") == 3)
    if field.type == "section":
        return value is None or bool(value == {})
    return bool(value == field.default)


def _plain(value: Any) -> Any:
    """Return JSON values in which 5e8 and 500000000 are one number."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
