"""The workload, which a study may not change."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from autotune.errors import WorkloadError
from autotune.job.model_shape import LEARNED_POSITIONS, ModelShape

PRECISIONS = ("bf16", "fp16", "fp32")
DEFAULT_SEQUENCES_PER_RANK = 32
DEFAULT_SEQ_LEN = 2_048
TINY_SEQ_LEN = 128
"""The tiny preset trains on CPU ranks, where 2,048 tokens would take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The part of a training job that decides its speed and memory."""

    model: ModelShape
    seq_len: int
    """Tokens per sequence."""
    global_batch_size: int
    """Sequences per optimizer step, all ranks together: DeepSpeed's `train_batch_size`."""
    world_size: int
    """Data-parallel ranks, one per device."""
    precision: str
    """bf16, fp16 or fp32."""
    optimizer: Mapping[str, Any]
    """The `optimizer` section of the ds_config."""
    gradient_clipping: float
    """Maximum gradient norm; 0 is no clipping, as in DeepSpeed."""
    grad_accum_dtype: str | None = None
    """`data_types.grad_accum_dtype`; None is DeepSpeed's own choice."""
    attn_implementation: str = "sdpa"
    """Hugging Face's attention implementation."""
    activation_checkpointing: bool | None = None
    """Whether the model recomputes activations; None leaves it to the study."""
    origin: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Origin of each value (`autotune.job.origin`)."""

    def __post_init__(self) -> None:
        faults = [
            f"{name}={value}: must be at least 1"
            for name, value in (
                ("seq_len", self.seq_len),
                ("global_batch_size", self.global_batch_size),
                ("world_size", self.world_size),
            )
            if value < 1
        ]
        if not faults and self.global_batch_size % self.world_size:
            below = self.global_batch_size // self.world_size * self.world_size
            choices = [n for n in (below, below + self.world_size) if n]
            faults.append(
                f"global_batch_size={self.global_batch_size}: not divisible by "
                f"{self.world_size} ranks; nearest: {' or '.join(map(str, choices))}"
            )
        if self.precision not in PRECISIONS:
            faults.append(f"precision={self.precision!r}: must be one of {', '.join(PRECISIONS)}")
        limit = self.model.max_position_embeddings
        if self.model.model_type in LEARNED_POSITIONS and 0 < limit < self.seq_len:
            faults.append(
                f"seq_len={self.seq_len}: {self.model.name} has {limit} learned positions; "
                f"use --seq-len {limit} or less"
            )
        if faults:
            raise WorkloadError(*faults)

    @property
    def sequences_per_rank(self) -> int:
        """Sequences of one rank per optimizer step."""
        return self.global_batch_size // self.world_size

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step, all ranks together."""
        return self.global_batch_size * self.seq_len

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {
            "model": self.model.to_json(),
            "optimizer": dict(self.optimizer),
            "origin": dict(self.origin),
        }

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild a workload from `to_json`."""
        return cls(**{**mapping, "model": ModelShape.from_json(mapping["model"])})
