"""The workload: what a study may not change."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from autotune import dotted
from autotune.errors import WorkloadError
from autotune.job.model_shape import LEARNED_POSITIONS, ModelShape

PRECISIONS = ("bf16", "fp16", "fp32")
DEFAULT_SEQUENCES_PER_RANK = 32
DEFAULT_SEQ_LEN = 2_048
_BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
TINY_SEQ_LEN = 128
"""The tiny preset trains on CPU ranks, where 2,048 tokens would take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One training job, as far as its speed and memory are concerned."""

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
    """The `optimizer` section of the ds_config that is run."""
    gradient_clipping: float
    """Maximum gradient norm; 0 is no clipping, as in DeepSpeed."""
    grad_accum_dtype: str | None = None
    """`data_types.grad_accum_dtype`; None is DeepSpeed's own choice."""
    attn_implementation: str = "sdpa"
    """Hugging Face's attention implementation."""
    origin: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where each value came from: `--flag`, `--base`, or `preset`."""

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


def resolve_workload(  # noqa: PLR0913  one argument per thing a user may say
    model: ModelShape,
    *,
    gpus: int,
    base: Mapping[str, Any],
    seq_len: int | None = None,
    global_batch_size: int | None = None,
    precision: str | None = None,
    device_kind: str = "cuda",
) -> Workload:
    """Complete what the user said from the base config, and that from the preset.

    Args:
        model: the model to train.
        gpus: ranks, one per device.
        base: the user's ds_config; empty when there is none. `"auto"` counts as not said.
        seq_len: tokens per sequence.
        global_batch_size: sequences per optimizer step, all ranks.
        precision: bf16, fp16 or fp32.
        device_kind: cuda or cpu; on CPU ranks torch's own AdamW is used, so that no optimizer
            kernel has to be compiled.

    Raises:
        WorkloadError: the result cannot be trained; every fault is named.
    """
    faults = [*_base_faults(base), *(_batch_faults(base, gpus) if not global_batch_size else ())]
    if faults:
        raise WorkloadError(*faults)
    origin: dict[str, str] = {}

    def choose(name: str, flag: Any, in_base: Any, preset: Any) -> Any:
        for value, source in ((flag, "flag"), (in_base, "base"), (preset, "preset")):
            if value is not None:
                origin[name] = source
                return value
        raise AssertionError(name)

    tiny = model.name == "tiny"
    preset_len = TINY_SEQ_LEN if tiny else DEFAULT_SEQ_LEN
    if model.max_position_embeddings:
        preset_len = min(preset_len, model.max_position_embeddings)
    optimizer = choose("optimizer", None, _said(base, "optimizer"), _default_optimizer())
    if device_kind == "cpu":
        params = dict(optimizer.get("params") or {})
        optimizer = {**optimizer, "params": {"torch_adam": True} | params}
    return Workload(
        model=model,
        seq_len=choose("seq_len", seq_len, None, preset_len),
        global_batch_size=choose(
            "global_batch_size",
            global_batch_size,
            _base_batch_size(base, gpus),
            (8 if tiny else DEFAULT_SEQUENCES_PER_RANK) * gpus,
        ),
        world_size=gpus,
        precision=choose("precision", precision, _base_precision(base), "bf16"),
        optimizer=optimizer,
        gradient_clipping=choose("gradient_clipping", None, _said(base, "gradient_clipping"), 1.0),
        grad_accum_dtype=_said(base, "data_types.grad_accum_dtype"),
        origin=origin,
    )


def _default_optimizer() -> dict[str, Any]:
    return {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}


def _said(base: Mapping[str, Any], key: str) -> Any:
    """Return a value of the base config, or None where it leaves the choice to Hugging Face."""
    value = dotted.get(base, key)
    return None if value == "auto" else value


def _base_faults(base: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the parts of the base config that the workload is made of."""
    for key in _BATCH_KEYS:
        size = _said(base, key)
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            yield f"--base: {key}={size!r}: must be a whole number, at least 1"
    optimizer = _said(base, "optimizer")
    if optimizer is not None and not isinstance(dotted.get(base, "optimizer.type"), str):
        yield f'--base: optimizer={optimizer!r}: must be a section with a type, such as "AdamW"'
    elif not isinstance(dotted.get(base, "optimizer.params", {}), Mapping | None):
        yield "--base: optimizer.params: must be a section"
    clipping = _said(base, "gradient_clipping")
    if clipping is not None and not isinstance(clipping, int | float):
        yield f"--base: gradient_clipping={clipping!r}: must be a number"
    for section in ("bf16", "fp16", "bfloat16", "zero_optimization"):
        if not isinstance(base.get(section, {}), Mapping | bool):
            yield f"--base: {section}={base[section]!r}: must be a section"


def _batch_faults(base: Mapping[str, Any], gpus: int) -> Iterator[str]:
    """Yield why the base config's batch sizes do not multiply, as DeepSpeed checks it."""
    batch, micro, accumulation = (_said(base, key) for key in _BATCH_KEYS)
    if not isinstance(batch, int) or (micro is None and accumulation is None):
        return
    given = f"{micro or 'any'} x {accumulation or 'any'} x {gpus} ranks"
    known = (micro or 1) * (accumulation or 1) * gpus
    if batch % known or (micro and accumulation and batch != known):
        yield (
            f"--base: {_BATCH_KEYS[0]}={batch} is not {' x '.join(_BATCH_KEYS[1:])} x ranks: "
            f"{given}; mend the base config, or set --global-batch-size"
        )


def _base_precision(base: Mapping[str, Any]) -> str | None:
    sections = {"bf16": ("bf16", "bfloat16"), "fp16": ("fp16",)}
    said = [
        (name, enabled)
        for name, keys in sections.items()
        for key in keys
        if (enabled := _said(base, f"{key}.enabled")) is not None
    ]
    on = [name for name, enabled in said if enabled]
    if on:
        return on[0]
    # A section switched off on purpose means fp32; no section, or "auto", means nothing.
    return "fp32" if said else None


def _base_batch_size(base: Mapping[str, Any], gpus: int) -> int | None:
    train, micro, accumulation = (_said(base, key) for key in _BATCH_KEYS)
    if train is not None:
        return int(train)
    if micro is not None:
        return int(micro) * int(accumulation or 1) * gpus
    return None
