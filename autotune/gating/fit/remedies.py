"""What a user can change in favour of memory, keeping the global batch and what is trained."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.job.batch import ACCUMULATION, MICRO_BATCH
from autotune.planning.planned_job import PlannedJob
from autotune.predict.memory.fit import Fit
from autotune.predict.training_job import Training

NUM_SIZES = 5
"""Smaller micro batches that are tried."""
_ZERO = "zero_optimization"
_SMALL_BUCKET = 50_000_000
"""A tenth of DeepSpeed's default; smaller ones save nothing more that counts."""
_SMALL_LIVE = 100_000_000
_CPU_OPTIMIZERS = frozenset({"adam", "adamw", "adagrad", "lion"})
"""For which DeepSpeed has an optimizer on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One thing that a user can change."""

    kind: str
    """Of two remedies of a kind only one can be pulled."""
    put: Mapping[str, Any]
    """Dotted keys and their new values; empty for what is set in the model."""
    step: int = 0
    """How far it is pulled, among the remedies of its kind."""
    checkpointing: bool = False


def remedies_of(job: PlannedJob, fit: Fit) -> Iterator[Remedy]:
    """Yield what can be changed; of one kind the mildest first."""
    training, zero = fit.training, fit.training.zero
    if not fit.training.activation_checkpointing:
        yield Remedy(kind="checkpointing", put={}, checkpointing=True)
    for stage in range(zero.stage + 1, job.highest_stage + 1):
        yield Remedy(kind="stage", put={f"{_ZERO}.stage": stage}, step=stage)
    yield from _micro_batches(job, training)
    yield from _buckets(training)
    yield from _offloads(job, training)
    if fit.estimate.host.fits is False:
        yield from _host_reliefs(training)


def _micro_batches(job: PlannedJob, training: Training) -> Iterator[Remedy]:
    """Yield a few smaller micro batches, the largest first, with more accumulation."""
    if job.batch.origin is None:
        return
    micro, sequences = training.micro_batch_size, training.micro_batch_size * training.accumulation
    # Every size is a program of its own to look at: halves are enough of a choice.
    sizes = [size for size in (micro // 2**n for n in range(1, NUM_SIZES + 1)) if size]
    for step, size in enumerate(dict.fromkeys((*sizes, 1))):
        if size < micro and sequences % size == 0:
            put = {MICRO_BATCH: size, ACCUMULATION: sequences // size}
            yield Remedy(kind=MICRO_BATCH, put=put, step=step)


def _buckets(training: Training) -> Iterator[Remedy]:
    zero = training.zero
    if zero.reduce_bucket_size > _SMALL_BUCKET:
        yield Remedy(kind="bucket", put={f"{_ZERO}.reduce_bucket_size": _SMALL_BUCKET})
    if zero.overlap_comm and zero.stage in (1, 2):
        yield Remedy(kind="overlap", put={f"{_ZERO}.overlap_comm": False})
    if zero.max_live_parameters > _SMALL_LIVE:
        keys = (f"{_ZERO}.stage3_max_live_parameters", f"{_ZERO}.stage3_max_reuse_distance")
        yield Remedy(kind="live", put=dict.fromkeys(keys, _SMALL_LIVE))


def _offloads(job: PlannedJob, training: Training) -> Iterator[Remedy]:
    zero = training.zero
    # TrainingArguments say adamw_torch, adamw_bnb_8bit and so on.
    optimizer = job.resolved.optimizer.lower().partition("_")[0]
    if not zero.offload_optimizer.enabled and optimizer in _CPU_OPTIMIZERS:
        put = {f"{_ZERO}.offload_optimizer.device": "cpu"}
        yield Remedy(kind="offload_optimizer", put=put)
    if not zero.offload_param.enabled:
        yield Remedy(kind="offload_param", put={f"{_ZERO}.offload_param.device": "cpu"})


def _host_reliefs(training: Training) -> Iterator[Remedy]:
    """Yield what takes less of the host."""
    for name in ("offload_optimizer", "offload_param"):
        offload = getattr(training.zero, name)
        if offload.enabled and offload.pin_memory:
            yield Remedy(kind=f"{name}.pin", put={f"{_ZERO}.{name}.pin_memory": False})
        if offload.enabled:
            yield Remedy(kind=name, put={f"{_ZERO}.{name}.device": "none"})
