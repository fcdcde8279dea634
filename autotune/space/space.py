"""The search space: the keys that a study may change, and the canonical form of its points."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Self

from autotune import dotted
from autotune.ds_config.fields.table import default_of
from autotune.ds_config.inert import inert_keys
from autotune.ds_config.key_aliases import documented
from autotune.errors import SpaceError
from autotune.job.workload import Workload
from autotune.serialization import Serializable
from autotune.space.parameter import Choices, Parameter
from autotune.space.proposal import MODEL_PREFIX, Proposal, Scalar
from autotune.space.reading import read_parameters

MICRO_BATCH = "train_micro_batch_size_per_gpu"
_CHECKPOINTING = f"{MODEL_PREFIX}activation_checkpointing"
_DECIDING_SECTIONS = ("zero_optimization.", "checkpoint.writer.")
_DECIDING = (
    "zero_optimization.stage",
    "zero_optimization.offload_optimizer.device",
    "zero_optimization.offload_param.device",
    "managed_gradient_accumulation",
    "gradient_predivide_factor",
    "prescale_gradients",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.reduce_scatter",
    "zero_optimization.zero_quantized_gradients",
    "zero_optimization.offload_optimizer.super_offload",
    "zero_optimization.stage3_allgather_sequential",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_model_persistence_threshold",
)
"""Keys that determine whether others act (autotune/ds_config/inert_zero.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace(Serializable):
    """The keys that a study may change."""

    name: str
    parameters: tuple[Parameter, ...]
    """Each key comes after the keys that its condition names."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Dotted ds_config keys that every point shares; known once the space is bound."""
    world_size: int | None = None
    """Data-parallel ranks; known once the space is bound."""

    def __hash__(self) -> int:
        return hash((self.name, self.parameters))

    def bind(self, workload: Workload, base: Mapping[str, Any] | None = None) -> Self:
        """Return the part of the space that a workload can run.

        Micro batches that do not divide the sequences of a rank are dropped, and nothing else.

        Args:
            workload: sets world size, global batch and precision.
            base: the ds_config that proposals are merged into; None without one. Its keys determine
            which proposals are the same run.

        Raises:
            SpaceError: no micro batch is left.
        """
        parameters = tuple(
            _bind_micro_batch(p, workload, self.name) if p.key == MICRO_BATCH else p
            for p in self.parameters
            # What the job states is not searched.
            if p.key != _CHECKPOINTING or workload.activation_checkpointing is None
        )
        searched = {p.key for p in parameters}
        fixed = {k: v for k, v in _fixed(workload, base).items() if k not in searched}
        return replace(self, parameters=parameters, fixed=fixed, world_size=workload.world_size)

    def canonical(self, values: Mapping[str, Scalar]) -> Proposal:
        """Return the proposal that all points with the same run as this one share.

        Keys whose condition does not hold and keys that cannot act are left out, sizes are rounded
        to valid multiples, and keys are in the order of the space. Keys outside the space are kept,
        after the others.

        Args:
            values: by dotted key; a key of the space may be missing.
        """
        values = documented(values)
        kept: dict[str, Scalar] = {}
        for parameter in self.parameters:
            key = parameter.key
            if key in values and parameter.acts({**self.fixed, **kept}):
                kept[key] = parameter.snap(values[key])
        own = {parameter.key for parameter in self.parameters}
        kept |= {key: value for key, value in values.items() if key not in own}
        in_ds_config = {k: v for k, v in kept.items() if not k.startswith(MODEL_PREFIX)}
        inert = inert_keys({**self.fixed, **in_ds_config}, world_size=self.world_size, partial=True)
        return Proposal(values={key: v for key, v in kept.items() if key not in inert})


def load_space(name_or_path: str) -> SearchSpace:
    """Load a search space that comes with autotune, or one from a YAML file.

    Raises:
        SpaceError: there is no such space, or the file is wrong; every fault of it is named.

    Example:
        >>> load_space("zero").name
        'zero'
    """
    shipped = resources.files("search_spaces").joinpath(f"{name_or_path}.yaml")
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SpaceError(f"{path}: not readable: {_why(error)}") from error
        return SearchSpace(name=path.stem, parameters=read_parameters(text, source=str(path)))
    if name_or_path not in space_names():
        raise SpaceError(
            f"search space {name_or_path!r}: neither a known name nor a YAML file; "
            f"known: {', '.join(space_names())}"
        )
    text = shipped.read_text(encoding="utf-8")
    source = f"search_spaces/{name_or_path}.yaml"
    return SearchSpace(name=name_or_path, parameters=read_parameters(text, source=source))


def space_names() -> tuple[str, ...]:
    """Return the names of the search spaces that come with autotune."""
    files = resources.files("search_spaces").iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


def _fixed(workload: Workload, base: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fixed values that determine, with a proposal, which of its keys act."""
    flat = documented(dotted.flatten(base or {}))
    deciding = {
        key: value
        for key, value in flat.items()
        if value != "auto" and key.startswith(_DECIDING_SECTIONS)
    }
    if base is not None:
        # A key that the whole config does not set has DeepSpeed's default.
        deciding |= {key: flat.get(key, default_of(key)) for key in _DECIDING}
    return deciding | {
        "bf16.enabled": workload.precision == "bf16",
        "fp16.enabled": workload.precision == "fp16",
        "data_types.grad_accum_dtype": workload.grad_accum_dtype,
        "optimizer.type": workload.optimizer.get("type"),
    }


def _bind_micro_batch(parameter: Parameter, workload: Workload, space: str) -> Parameter:
    per_rank = workload.sequences_per_rank
    divisors = [n for n in range(1, per_rank + 1) if per_rank % n == 0]
    kept = tuple(n for n in divisors if parameter.kind.holds(n))
    if not kept:
        raise SpaceError(
            f"{space}: {MICRO_BATCH}: {_described(parameter)} has no divisor of the {per_rank} "
            f"sequences of a rank (global batch {workload.global_batch_size} / "
            f"{workload.world_size} ranks); add {_nearest_divisors(parameter, divisors)}"
        )
    return replace(parameter, kind=Choices(values=kept))


def _described(parameter: Parameter) -> str:
    kind = parameter.kind
    if isinstance(kind, Choices):
        return f"choices {', '.join(map(str, kind.values))}"
    return f"range {kind.low} to {kind.high}"


def _nearest_divisors(parameter: Parameter, divisors: list[int]) -> str:
    kind = parameter.kind
    wanted = kind.values if isinstance(kind, Choices) else (kind.low, kind.high)
    sizes = [value for value in wanted if isinstance(value, int | float)]
    near = sorted(divisors, key=lambda n: min(abs(n - size) for size in sizes))
    return " or ".join(map(str, sorted(near[:2])))


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
