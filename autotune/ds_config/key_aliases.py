"""Normalizes the keys of a ds_config: documented names, and current fields for deprecated ones."""

from collections.abc import Mapping
from typing import Any

from autotune.ds_config.fields.table import documented_key

_ZERO = "zero_optimization"
# runtime/zero/config.py: the deprecated switches and what their `new_param_fn` sets.
_SWITCHES = {
    f"{_ZERO}.cpu_offload": f"{_ZERO}.offload_optimizer.device",
    f"{_ZERO}.cpu_offload_param": f"{_ZERO}.offload_param.device",
}
_RENAMED = {
    f"{_ZERO}.stage3_gather_fp16_weights_on_model_save": (
        f"{_ZERO}.stage3_gather_16bit_weights_on_model_save"
    ),
}


def documented(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flattened ds_config under its documented names.

    Where a field is set under its documented name and another, the documented one counts; DeepSpeed
    refuses such a config. Deprecated fields are converted as DeepSpeed does.

    Example:
        >>> documented({"zero_optimization.prefetch_bucket_size": 7, "bfloat16.enabled": True})
        {'zero_optimization.stage3_prefetch_bucket_size': 7, 'bf16.enabled': True}
        >>> documented({"zero_optimization.cpu_offload": True})
        {'zero_optimization.offload_optimizer.device': 'cpu'}
    """
    spelled: dict[str, Any] = {}
    for key, value in flat.items():
        if is_superseded(key, flat):
            continue
        name = current_key(key)
        if key == _ZERO and isinstance(value, bool):
            # runtime/zero/config.py: read_zero_config_deprecated
            spelled[f"{_ZERO}.stage"] = int(value)
        elif key in _SWITCHES:
            if value:
                spelled[name] = "cpu"
        else:
            spelled[name] = value
    return spelled


def current_key(key: str) -> str:
    """Return the documented name of the field that a key sets, also for a deprecated key.

    Example:
        >>> current_key("zero_optimization.cpu_offload")
        'zero_optimization.offload_optimizer.device'
    """
    name = documented_key(key)
    return _SWITCHES.get(name) or _RENAMED.get(name, name)


def is_superseded(key: str, flat: Mapping[str, Any]) -> bool:
    """Whether a key is ignored because the same field is set under another name.

    The old section `bfloat16` is ignored if `bf16` is set; two names of a pydantic field are
    refused.
    """
    if key.startswith("bfloat16."):
        # runtime/precision_config.py: the old section is read only where the new one is missing.
        return any(other == "bf16" or other.startswith("bf16.") for other in flat)
    return documented_key(key) != key and documented_key(key) in flat
