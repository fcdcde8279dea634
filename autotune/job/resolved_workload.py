"""The workload of a resolved job, which a study keeps fixed."""

from collections.abc import Iterator, Mapping
from typing import Any

from autotune import dotted
from autotune.errors import JobError, NotJudgedError, WorkloadError
from autotune.job.batch import ACCUMULATION, MICRO_BATCH, TRAIN_BATCH
from autotune.job.origin import Fact, Origin
from autotune.job.resolve import ResolvedJob
from autotune.job.workload import DEFAULT_SEQUENCES_PER_RANK, Workload

_BATCH_KEYS = (TRAIN_BATCH, MICRO_BATCH, ACCUMULATION)
_TINY_SEQUENCES_PER_RANK = 8
_OPTIMIZER: Mapping[str, Any] = {
    "type": "AdamW",
    "params": {"lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.1},
}


def workload_of(resolved: ResolvedJob, *, device_kind: str = "cuda") -> Workload:
    """Return the workload of a job.

    Args:
        resolved: the job; its ds_config is the base.
        device_kind: cuda or cpu; CPU ranks use torch's own AdamW, so that no optimizer kernel has
            to be compiled.

    Raises:
        JobError: model or number of GPUs are not known.
        WorkloadError: the workload cannot be trained; every fault is named.
    """
    shape, gpus = resolved.shape, resolved.site.gpus
    if resolved.not_judged is not None:
        raise NotJudgedError(resolved.not_judged)
    missing = [
        f"{option}: missing; give it, or write it into autotune.yaml"
        for option, value in (("--model", shape), ("--gpus", gpus))
        if value is None
    ]
    if shape is None or gpus is None:
        raise JobError(*missing)
    require_trainable(resolved)
    base = resolved.subject.config
    optimizer: Mapping[str, Any] = _given(base, "optimizer") or _OPTIMIZER
    if device_kind == "cpu":
        params = dict(optimizer.get("params") or {})
        optimizer = {**optimizer, "params": {"torch_adam": True} | params}
    clipping = _given(base, "gradient_clipping")
    return Workload(
        model=shape,
        seq_len=resolved.seq_len,
        global_batch_size=_global_batch_size(resolved).value,
        world_size=gpus,
        precision=resolved.precision,
        optimizer=optimizer,
        gradient_clipping=1.0 if clipping is None else clipping,
        grad_accum_dtype=_given(base, "data_types.grad_accum_dtype"),
        attn_implementation=resolved.attn_implementation,
        activation_checkpointing=resolved.job.activation_checkpointing,
        origin={name: fact.origin.value for name, fact in workload_facts(resolved).items()},
    )


def require_trainable(resolved: ResolvedJob) -> None:
    """Make sure that the ds_config of a job can be trained.

    Raises:
        WorkloadError: batch sizes, optimizer or a section cannot be used; every fault is named.
    """
    base, ranks = resolved.subject.config, resolved.subject.launch.data_parallel
    faults = list(_base_faults(base))
    if not faults and ranks is not None and not resolved.job.global_batch_size:
        faults += _batch_faults(base, ranks)
    if faults:
        raise WorkloadError(*faults)


def workload_facts(resolved: ResolvedJob) -> Mapping[str, Fact]:
    """Return the facts of a job, including the global batch."""
    return {**resolved.facts, "global_batch_size": _global_batch_size(resolved)}


def _global_batch_size(resolved: ResolvedJob) -> Fact:
    batch, ranks = resolved.batch, resolved.subject.launch.data_parallel
    if (known := resolved.facts.get("global_batch_size")) is not None:
        return known
    if (train := resolved.subject.number(TRAIN_BATCH)) is not None:
        return Fact(value=int(train), origin=Origin.DS_CONFIG)
    if batch is not None and batch.origin is not None and ranks is not None:
        return Fact(value=batch.micro * batch.accumulation * ranks, origin=batch.origin)
    assert resolved.site.gpus is not None
    tiny = resolved.shape is not None and resolved.shape.name == "tiny"
    per_rank = _TINY_SEQUENCES_PER_RANK if tiny else DEFAULT_SEQUENCES_PER_RANK
    return Fact(value=per_rank * resolved.site.gpus, origin=Origin.PRESET)


def _given(base: Mapping[str, Any], key: str) -> Any:
    """Return a value of the base config; None if it is missing or "auto"."""
    value = dotted.get(base, key)
    return None if value == "auto" else value


def _base_faults(base: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of the base config that affect the workload."""
    for key in _BATCH_KEYS:
        size = _given(base, key)
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            yield f"--base: {key}={size!r}: must be a whole number, at least 1"
    optimizer = _given(base, "optimizer")
    if optimizer is not None and not isinstance(dotted.get(base, "optimizer.type"), str):
        yield f'--base: optimizer={optimizer!r}: must be a section with a type, such as "AdamW"'
    elif not isinstance(dotted.get(base, "optimizer.params", {}), Mapping | None):
        yield "--base: optimizer.params: must be a section"
    clipping = _given(base, "gradient_clipping")
    if clipping is not None and not isinstance(clipping, int | float):
        yield f"--base: gradient_clipping={clipping!r}: must be a number"
    for section in ("bf16", "fp16", "bfloat16", "zero_optimization"):
        if not isinstance(base.get(section, {}), Mapping | bool):
            yield f"--base: {section}={base[section]!r}: must be a section"


def _batch_faults(base: Mapping[str, Any], ranks: int) -> Iterator[str]:
    """Yield the base config's batch sizes that do not multiply, as DeepSpeed checks them."""
    batch, micro, accumulation = (_given(base, key) for key in _BATCH_KEYS)
    if not isinstance(batch, int):
        return
    given = f"{micro or 'any'} x {accumulation or 'any'} x {ranks} ranks"
    known = (micro or 1) * (accumulation or 1) * ranks
    if batch % known or (micro and accumulation and batch != known):
        yield (
            f"--base: {_BATCH_KEYS[0]}={batch} is not {' x '.join(_BATCH_KEYS[1:])} x ranks: "
            f"{given}; fix the base config, or set --global-batch-size"
        )
