"""The job of one row, in its shortest form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One row: a job in its shortest form."""

    name: str
    topic: str
    model: str = "1b"
    ranks: int = 8
    stage: int = 2
    micro_batch: int = 2
    seq_len: int = 2_048
    accumulation: int = 1
    checkpointing: bool = False
    precision: str = "bf16"
    optimizer: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "AdamW", "params": {"lr": 1e-4}}
    )
    attention: str = "sdpa"
    offload: bool = False
    """Of the optimizer, to the CPU."""
    zero: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of `zero_optimization`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the ds_config."""
    adapter_rank: int = 0
    """Freeze the model and add low-rank adapters beside q_proj and v_proj."""
    trained_layers: int = 0
    """Freeze all but this many layers at the end."""
    devices_per_node: int = 8
    """What ZeRO++'s quantized gradients take for a node."""

    @property
    def frozen(self) -> str:
        """What is frozen: nothing, the base under adapters, or what lies below the top."""
        return "adapters" if self.adapter_rank else "on_top" if self.trained_layers else ""

    @property
    def ds_config(self) -> dict[str, Any]:
        """The config as DeepSpeed gets it."""
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": self.micro_batch,
            "gradient_accumulation_steps": self.accumulation,
            "gradient_clipping": 1.0,
            "optimizer": dict(self.optimizer),
            "zero_optimization": {"stage": self.stage} | dict(self.zero),
        }
        if self.precision == "bf16":
            config["bf16"] = {"enabled": True}
        if self.precision == "fp16":
            # A fixed scale: steps skipped while a dynamic one settles would not allocate moments.
            config["fp16"] = {"enabled": True, "loss_scale": 128}
        if self.offload:
            config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
        return config | dict(self.extra)

    def tiny(self) -> "Spec":
        """Return the row with a smaller batch, for CPUs; `tiny_config` shrinks its model."""
        optimizer = dict(self.optimizer)
        if optimizer["type"] == "AdamW":
            optimizer = {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}
        elif optimizer["type"] == "Lion":
            optimizer = {"type": "SGD", "params": {"lr": 1e-4}}  # Lion's kernel is CUDA's
        extra = dict(self.extra)
        if optimizer["type"] == "SGD":
            extra["zero_allow_untested_optimizer"] = True
        zero = {"reduce_bucket_size": 100_000} | dict(self.zero)
        changes = {"optimizer": optimizer, "extra": extra, "zero": zero, "micro_batch": 1}
        values = {name: getattr(self, name) for name in self.__slots__}
        values |= changes | {"seq_len": 32, "trained_layers": min(self.trained_layers, 1)}
        if self.precision == "fp16":
            values["precision"] = "bf16"  # DeepSpeed refuses fp16 on CPUs
        return Spec(**values)
