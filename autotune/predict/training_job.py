"""What a ds_config, a workload and the model's own settings say about one rank's memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from autotune.errors import ConfigError
from autotune.job.model_shape import ModelShape
from autotune.job.workload import Workload
from autotune.predict.config_reader import Values
from autotune.predict.zero_settings import ZeroSettings

_DTYPES = {
    "fp32": 4,
    "float32": 4,
    "float": 4,
    "torch.float32": 4,
    "fp16": 2,
    "float16": 2,
    "half": 2,
    "torch.float16": 2,
    "bf16": 2,
    "bfloat16": 2,
    "torch.bfloat16": 2,
}

# State tensors an optimizer keeps per parameter, beside the parameter itself.
_MOMENTS = {
    "adam": 2,
    "adamw": 2,
    "fusedadam": 2,
    "lamb": 2,
    "onebitadam": 2,
    "zerooneadam": 2,
    "onebitlamb": 2,
    "lion": 1,
    "adagrad": 1,
    "muon": 1,
    "sgd": 0,
    "rmsprop": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """What a user sets in the model, because no ds_config key does it."""

    activation_checkpointing: bool = False
    """Hugging Face's `gradient_checkpointing_enable()`: layers are run again in backward."""
    attn_implementation: str | None = None
    """sdpa, flash_attention_2 or eager; None takes the workload's."""
    trainable_parameters: int | None = None
    """Fewer than the model's: a frozen base with adapters (LoRA). None trains everything."""
    trained_on_top: bool = False
    """The trainable parameters are the last layers instead: below them nothing is kept for
    backward."""

    @classmethod
    def of_trial(cls, settings: Mapping[str, Any]) -> Self:
        """Read the settings of a candidate: `activation_checkpointing`, `attn_implementation`."""
        attention = settings.get("attn_implementation")
        return cls(
            activation_checkpointing=bool(settings.get("activation_checkpointing", False)),
            attn_implementation=str(attention) if attention else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One rank's training job, resolved: everything that the memory model reads."""

    model: ModelShape
    zero: ZeroSettings
    world_size: int
    """Data-parallel ranks."""
    micro_batch_size: int
    """Sequences of one rank per micro step."""
    accumulation: int
    """Micro steps per optimizer step."""
    seq_len: int
    precision: str
    """bf16, fp16 or fp32: what the forward computes in."""
    element_bytes: int
    """Of a weight, an activation and a gradient."""
    accumulation_bytes: int
    """Of an accumulated gradient: `data_types.grad_accum_dtype`."""
    communication_bytes: int
    """Of a gradient on its way: `communication_data_type`."""
    master_bytes: int
    """Of a master weight; 4 unless `*_master_weights_and_grads` is on."""
    moment_bytes: int
    num_moments: int
    """State tensors per parameter: 2 for Adam, 1 for Lion, 0 for plain SGD."""
    foreach_optimizer: bool
    """torch's own optimizer, whose fused loops need scratch as large as one state."""
    fused_adam: bool
    """DeepSpeed's FusedAdam, for which stage 0 has an engine of its own."""
    activation_checkpointing: bool
    attn_implementation: str
    trainable_parameters: int | None
    trained_on_top: bool
    expert_parallel_size: int = 1
    """Ranks that share one set of experts (`expert_parallel.autoep_size`)."""

    @property
    def tokens(self) -> int:
        """Tokens of one micro step on one rank."""
        return self.micro_batch_size * self.seq_len


def read_training(
    ds_config: Mapping[str, Any], workload: Workload, settings: ModelSettings | None = None
) -> Training:
    """Resolve what a rank will hold, reading the config as DeepSpeed 0.19.8 does.

    Args:
        ds_config: the config; keys that it lacks take DeepSpeed's defaults, and batch sizes and
            `"auto"` precision the workload's.
        workload: model, ranks, sequence length.
        settings: what is set in the model itself.

    Raises:
        ConfigError: keys that cannot be read or do not fit together; every one is named.
    """
    settings = settings or ModelSettings()
    faults: list[str] = []
    values = Values(ds_config, faults)
    zero = ZeroSettings.from_values(values)
    precision = _precision(values, workload)
    element_bytes = _DTYPES[precision]
    master_bytes, moment_bytes = _state_bytes(values, precision)
    micro_batch_size, accumulation = _batch(values, workload)
    num_moments, foreach, fused_adam = _optimizer(values, workload)
    trainable = settings.trainable_parameters
    if trainable is not None and trainable < 1:
        faults.append(f"trainable parameters={trainable}: must be at least 1")
    if zero.stage < 3 and zero.offload_optimizer.ratio < 1:
        faults.append(
            "zero_optimization.offload_optimizer.ratio: DeepSpeed offloads a part at stage 3 only"
        )
    if faults:
        raise ConfigError(*(f"ds_config: {fault}" for fault in faults))
    training = Training(
        model=workload.model,
        zero=zero,
        world_size=workload.world_size,
        micro_batch_size=micro_batch_size,
        accumulation=accumulation,
        seq_len=workload.seq_len,
        precision=precision,
        element_bytes=element_bytes,
        accumulation_bytes=values.choice("data_types.grad_accum_dtype", _DTYPES, element_bytes),
        communication_bytes=values.choice("communication_data_type", _DTYPES, element_bytes),
        master_bytes=master_bytes,
        moment_bytes=moment_bytes,
        num_moments=num_moments,
        foreach_optimizer=foreach,
        fused_adam=fused_adam,
        activation_checkpointing=settings.activation_checkpointing,
        attn_implementation=settings.attn_implementation or workload.attn_implementation,
        trainable_parameters=trainable,
        trained_on_top=settings.trained_on_top,
        expert_parallel_size=_expert_parallel_size(values, workload),
    )
    if faults:
        raise ConfigError(*(f"ds_config: {fault}" for fault in faults))
    return training


def said_precision(ds_config: Mapping[str, Any]) -> str | None:
    """Return the precision a ds_config asks for; None when it leaves it open with `"auto"`.

    A config that says nothing trains in fp32, as DeepSpeed does.
    """
    values = Values(ds_config, [])
    for name, keys in {"bf16": ("bf16", "bfloat16"), "fp16": ("fp16",)}.items():
        if any(values.flag(f"{key}.enabled", default=False) for key in keys):
            return name
    left_open = any(
        (values.ds_config.get(key) or {}).get("enabled") == "auto"
        for key in ("bf16", "bfloat16", "fp16")
        if isinstance(values.ds_config.get(key), dict)
    )
    return None if left_open else "fp32"


def _precision(values: Values, workload: Workload) -> str:
    if values.flag("bf16.enabled", default=False) and values.flag("fp16.enabled", default=False):
        values.faults.append("fp16.enabled and bf16.enabled: only one may be on")
    return said_precision(values.ds_config) or workload.precision


def _state_bytes(values: Values, precision: str) -> tuple[int, int]:
    """Return bytes of a master weight and of a moment."""
    low = values.flag(f"{precision}.{precision}_master_weights_and_grads", default=False)
    if precision == "fp32" or not low:
        return 4, 4
    moments_low = values.flag("bf16.bf16_optimizer_states", default=False)
    return 2, 2 if moments_low else 4


def _batch(values: Values, workload: Workload) -> tuple[int, int]:
    """Return micro batch and accumulation; two of the three batch keys decide, as in DeepSpeed."""
    ranks = workload.world_size
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    train, micro, steps = (
        values.whole(key, 0, least=1) if values.said(key) is not None else None for key in keys
    )
    if train is None and micro is None:
        train = workload.global_batch_size
    if micro is None:
        assert train is not None
        steps = steps or 1
        micro = train // (ranks * steps)
    elif steps is None:
        steps = max(train // (ranks * micro), 1) if train else 1
    if train is not None and train != ranks * micro * steps and not values.faults:
        values.faults.append(
            f"train_batch_size={train}: is not {micro} x {steps} x {ranks} ranks "
            "(micro batch x accumulation x ranks)"
        )
    return max(micro, 1), max(steps, 1)


def _optimizer(values: Values, workload: Workload) -> tuple[int, bool, bool]:
    """Return the number of state tensors, whether torch's own loops step them, or FusedAdam."""
    section = values.said("optimizer")
    section = section if isinstance(section, dict) else workload.optimizer
    kind = str(section.get("type", "AdamW")).lower()
    params = section.get("params")
    params = params if isinstance(params, dict) else {}
    moments = _MOMENTS.get(kind, 2)
    if kind == "sgd" and params.get("momentum", 0) not in (0, "auto"):
        moments = 1
    torch_own = bool(params.get("torch_adam")) or kind in ("sgd", "adagrad", "rmsprop")
    return moments, torch_own and moments > 0, kind in ("adam", "adamw") and not torch_own


def _expert_parallel_size(values: Values, workload: Workload) -> int:
    if not values.flag("expert_parallel.enabled", default=False):
        return 1
    size = values.whole("expert_parallel.autoep_size", 1, least=1)
    if workload.world_size % size:
        values.faults.append(
            f"expert_parallel.autoep_size={size}: does not divide {workload.world_size} ranks"
        )
    return size
