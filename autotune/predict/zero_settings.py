"""The `zero_optimization` section of a ds_config, with DeepSpeed 0.19.8's own defaults."""

import sys
from dataclasses import dataclass
from typing import Any, Self

from autotune.predict.config_reader import Values

_SECTION = "zero_optimization"
_STAGES = {"0": 0, "1": 1, "2": 2, "3": 3, "false": 0, "true": 1}
_DEVICES = {"none": "none", "cpu": "cpu", "nvme": "nvme"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """Where states go that do not stay on the GPU: `offload_optimizer` or `offload_param`."""

    device: str = "none"
    """none, cpu or nvme."""
    pin_memory: bool = True
    """RuleInfo-locked host memory, which torch hands out in powers of two."""
    ratio: float = 1.0
    """Share of the sub-groups that leave the GPU; optimizer at stage 3 only."""
    buffer_count: int = 0
    """NVMe: swap buffers in host memory."""
    buffer_size: int = 0
    """NVMe parameters: elements of one swap buffer."""
    max_in_cpu: int = 0
    """NVMe parameters: elements that stay in host memory."""

    @property
    def enabled(self) -> bool:
        """Whether anything leaves the GPU."""
        return self.device != "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroSettings:
    """Keys of `zero_optimization` that act on memory; sizes in elements, as DeepSpeed counts."""

    stage: int = 0
    contiguous_gradients: bool = True
    """Gradients are copied into one bucket; optimizer offload forces it on at stages 1 and 2."""
    reduce_scatter: bool = True
    reduce_bucket_size: int = 500_000_000
    overlap_comm: bool = False
    """Stages 1 and 2 then hold two buckets; the default is True at stage 3 only."""
    round_robin_gradients: bool = False
    sub_group_size: int = 1_000_000_000
    """Elements of a rank that are stepped at once (stage 3)."""
    prefetch_bucket_size: int = 50_000_000
    """Gather ahead until this many elements are passed (stage 3)."""
    param_persistence_threshold: int = 100_000
    """Parameters of at most this many elements stay gathered (stage 3)."""
    model_persistence_threshold: int = sys.maxsize
    max_live_parameters: int = 1_000_000_000
    """Prefetch stops above it; nothing is released because of it (stage 3)."""
    max_reuse_distance: int = 1_000_000_000
    """A parameter used again within this many elements is not released (stage 3)."""
    allgather_sequential: bool = False
    hpz_partition_size: int = 1
    """ZeRO++ hpZ: ranks of the secondary partition; 1 is off."""
    quantized_weights: bool = False
    """ZeRO++ qwZ: gathers travel as int8."""
    quantized_nontrainable_weights: bool = False
    """Frozen weights are stored as int8."""
    quantized_gradients: bool = False
    """ZeRO++ qgZ: gradients travel as int4 between nodes."""
    offload_optimizer: Offload = Offload()
    offload_param: Offload = Offload()

    @classmethod
    def from_values(cls, values: Values) -> Self:
        """Read the section, deprecated spellings included; faults go to `values.faults`."""
        section = values.said(_SECTION)
        if section is not None and not isinstance(section, dict | bool):
            values.faults.append(f"{_SECTION}={section!r}: must be a mapping")
            return cls()
        if isinstance(section, bool):
            return cls(stage=int(section))
        stage = values.choice(_key("stage"), _STAGES, 0)
        sharded = stage == 3
        return cls(
            stage=stage,
            overlap_comm=values.flag(_key("overlap_comm"), sharded),
            contiguous_gradients=values.flag(_key("contiguous_gradients"), default=True),
            reduce_scatter=values.flag(_key("reduce_scatter"), default=True),
            reduce_bucket_size=values.whole(_key("reduce_bucket_size"), 500_000_000, least=1),
            round_robin_gradients=values.flag(_key("round_robin_gradients"), default=False),
            sub_group_size=values.whole(_key("sub_group_size"), 1_000_000_000),
            **_stage3_keys(values),
            hpz_partition_size=values.whole(_key("zero_hpz_partition_size"), 1),
            quantized_weights=values.flag(_key("zero_quantized_weights"), default=False),
            quantized_nontrainable_weights=values.flag(
                _key("zero_quantized_nontrainable_weights"), default=False
            ),
            quantized_gradients=values.flag(_key("zero_quantized_gradients"), default=False),
            offload_optimizer=_offload_optimizer(values) if stage else Offload(),
            # Parameters are not sharded below stage 3, and DeepSpeed ignores the block there.
            offload_param=_offload_param(values) if sharded else Offload(),
        )


def _key(name: str) -> str:
    return f"{_SECTION}.{name}"


def _stage3_keys(values: Values) -> dict[str, Any]:
    """Read the keys that have both a long name (`stage3_...`) and a short one."""
    defaults = {
        "prefetch_bucket_size": 50_000_000,
        "param_persistence_threshold": 100_000,
        "model_persistence_threshold": sys.maxsize,
        "max_live_parameters": 1_000_000_000,
        "max_reuse_distance": 1_000_000_000,
    }
    found: dict[str, Any] = {
        name: values.whole(_either(values, name), default) for name, default in defaults.items()
    }
    found["allgather_sequential"] = values.flag(
        _either(values, "allgather_sequential"), default=False
    )
    return found


def _either(values: Values, name: str) -> str:
    long = _key(f"stage3_{name}")
    return long if values.said(long) is not None else _key(name)


def _offload_optimizer(values: Values) -> Offload:
    section = _key("offload_optimizer")
    if values.said(section) is None:
        return _deprecated_offload(values, "cpu_offload")
    if not _is_mapping(values, section):
        return Offload()
    return Offload(
        device=values.choice(f"{section}.device", _DEVICES, "none"),
        pin_memory=values.flag(f"{section}.pin_memory", default=True),
        ratio=values.share(f"{section}.ratio", 1.0),
        buffer_count=values.whole(f"{section}.buffer_count", 4),
    )


def _offload_param(values: Values) -> Offload:
    section = _key("offload_param")
    if values.said(section) is None:
        return _deprecated_offload(values, "cpu_offload_param")
    if not _is_mapping(values, section):
        return Offload()
    return Offload(
        device=values.choice(f"{section}.device", _DEVICES, "none"),
        pin_memory=values.flag(f"{section}.pin_memory", default=True),
        buffer_count=values.whole(f"{section}.buffer_count", 5),
        buffer_size=values.whole(f"{section}.buffer_size", 100_000_000),
        max_in_cpu=values.whole(f"{section}.max_in_cpu", 1_000_000_000),
    )


def _deprecated_offload(values: Values, name: str) -> Offload:
    return Offload(device="cpu") if values.flag(_key(name), default=False) else Offload()


def _is_mapping(values: Values, section: str) -> bool:
    value = values.said(section)
    if not isinstance(value, dict):
        values.faults.append(f'{section}={value!r}: must be a mapping such as {{"device": "cpu"}}')
    return isinstance(value, dict)
