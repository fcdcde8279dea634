"""The compiled ops of DeepSpeed that a run loads. On CUDA each is compiled at its first use.

Read in DeepSpeed 0.19.8: runtime/engine.py (_configure_basic_optimizer), runtime/swap_tensor,
runtime/zero/partition_parameters.py, runtime/comm/coalesced_collectives.py.
"""

from collections.abc import Collection, Mapping
from typing import Any

_OFFLOAD_OPTIMIZER = "zero_optimization.offload_optimizer.device"
_OFFLOAD_PARAM = "zero_optimization.offload_param.device"
_QUANTIZED = (
    "zero_optimization.zero_quantized_weights",
    "zero_optimization.zero_quantized_nontrainable_weights",
    "zero_optimization.zero_quantized_gradients",
)
DECIDING = (_OFFLOAD_OPTIMIZER, _OFFLOAD_PARAM, *_QUANTIZED)
"""Keys that determine the ops, besides the optimizer."""

# By optimizer: the op on the device, and the one when its state is offloaded.
_OPTIMIZERS: Mapping[str, tuple[str | None, str | None]] = {
    "adam": ("fused_adam", "cpu_adam"),
    "adamw": ("fused_adam", "cpu_adam"),
    "muon": ("fused_adam", "cpu_adam"),
    "adagrad": (None, "cpu_adagrad"),
    "lion": ("fused_lion", "cpu_lion"),
    "lamb": ("fused_lamb", "fused_lamb"),
}


def compiled_ops(
    optimizer: Mapping[str, Any], possible: Mapping[str, Collection[Any]]
) -> tuple[str, ...]:
    """Return DeepSpeed's names of the ops that any of a study's runs may load.

    Args:
        optimizer: the `optimizer` section of the ds_config.
        possible: for each key of `DECIDING` the values that it may have.

    Example:
        >>> devices = {"zero_optimization.offload_optimizer.device": ["none", "cpu"]}
        >>> compiled_ops({"type": "AdamW"}, devices)
        ('fused_adam', 'cpu_adam')
    """
    devices = {str(value) for value in possible.get(_OFFLOAD_OPTIMIZER, ())} or {"none"}
    ops: list[str | None] = []
    if not (optimizer.get("params") or {}).get("torch_adam"):
        on_device, offloaded = _OPTIMIZERS.get(str(optimizer.get("type")).lower(), (None, None))
        if devices - {"cpu", "nvme"}:
            ops.append(on_device)
        if devices & {"cpu", "nvme"}:
            ops.append(offloaded)
    if "nvme" in devices | {str(value) for value in possible.get(_OFFLOAD_PARAM, ())}:
        ops.append("async_io")
    if any(True in possible.get(key, ()) for key in _QUANTIZED):
        ops.append("quantizer")
    return tuple(dict.fromkeys(op for op in ops if op))
