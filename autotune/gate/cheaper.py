"""The cheapest changes that would make a job fit, by formulas: hundreds are tried in a moment.

A change keeps the global batch and what is trained. Its cost is the predicted change in speed,
never a measurement.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from autotune.ceiling import GIB
from autotune.errors import ConfigError
from autotune.gate.batch import ACCUMULATION, MICRO_BATCH
from autotune.gate.job import GPUS_PER_NODE, Job
from autotune.gate.room import Judged
from autotune.gate.speed import predicted_speed
from autotune.plan.smallest import smallest_fitting
from autotune.predict.memory.bill import Bill
from autotune.predict.training import ModelSettings, Training

NUM_CHANGES = 3
NUM_SIZES = 5
"""Smaller micro batches that are tried."""
_ZERO = "zero_optimization"
_SMALL_BUCKET = 50_000_000
"""A tenth of DeepSpeed's default; smaller ones save nothing more that counts."""
_SMALL_LIVE = 100_000_000
_SAME = 0.01
_CPU_OPTIMIZERS = frozenset({"adam", "adamw", "adagrad", "lion"})
"""For which DeepSpeed has an optimizer on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One thing that a user can change."""

    kind: str
    """Of two levers of a kind only one can be pulled."""
    put: Mapping[str, Any]
    """Dotted keys and their new values; empty for what is set in the model."""
    step: int = 0
    """How far it is pulled, among the levers of its kind."""
    checkpointing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One or two levers that make the job fit."""

    levers: tuple[Lever, ...]
    speed: float
    """Predicted tokens/s over those of the job as it is."""
    bill: Bill

    @property
    def put(self) -> dict[str, Any]:
        """Dotted keys and their new values."""
        return {key: value for lever in self.levers for key, value in lever.put.items()}

    @property
    def text(self) -> str:
        """One line for a reader."""
        parts = [
            "activation checkpointing in the model"
            if lever.checkpointing
            else ", ".join(f"{key}: {json.dumps(value)}" for key, value in lever.put.items())
            for lever in self.levers
        ]
        return " and ".join(parts)


def suggestion(job: Job, judged: Judged) -> str:
    """Return what would make the job fit, one line a change, the cheapest first."""
    device = job.device
    lines = [
        f"{change.text} (predicted: {_percent(change.speed)} tokens/s, "
        f"{_needed(change.bill) / GIB:.0f} of {device.memory_bytes / GIB:.0f} GiB)"
        for change in cheapest_changes(job, judged)
    ]
    if (more := _more_gpus(job, judged)) is not None:
        lines.append(more)
    if not lines:
        return "no change of one or two keys makes it fit, nor do 4,096 GPUs: a smaller model"
    return "\n".join(lines)


def cheapest_changes(job: Job, judged: Judged, *, count: int = NUM_CHANGES) -> tuple[Change, ...]:
    """Return changes of one lever, or of two where neither does alone, the cheapest first."""
    base = predicted_speed(job, judged.training)
    levers = tuple(_levers(job, judged))
    found: list[Change] = []
    for number in (1, 2):
        for chosen in combinations(levers, number):
            if len({lever.kind for lever in chosen}) < number or _is_more(chosen, found):
                continue
            if (change := _tried(job, judged.settings, chosen, base)) is not None:
                found.append(change)
    return tuple(sorted(found, key=lambda change: -change.speed)[:count])


def _is_more(chosen: tuple[Lever, ...], found: list[Change]) -> bool:
    """Whether less does already: all levers of a change that was found, as far or further."""
    steps = {lever.kind: lever.step for lever in chosen}
    return any(
        all(steps.get(lever.kind, -1) >= lever.step for lever in change.levers) for change in found
    )


def _tried(
    job: Job, settings: ModelSettings, levers: tuple[Lever, ...], base: float
) -> Change | None:
    """Return the change if the job then fits, with the margin of the formulas kept free."""
    change = {key: value for lever in levers for key, value in lever.put.items()}
    if any(lever.checkpointing for lever in levers):
        settings = replace(settings, activation_checkpointing=True)
    try:
        training = job.training(settings, change)
    except ConfigError:
        return None
    bill = job.screen(training)
    if not bill.fits:
        return None
    return Change(levers=levers, speed=predicted_speed(job, training) / base, bill=bill)


def _levers(job: Job, judged: Judged) -> Iterator[Lever]:
    """Yield what can be changed; of one kind the mildest first."""
    training, zero = judged.training, judged.training.zero
    if not judged.settings.activation_checkpointing:
        yield Lever(kind="checkpointing", put={}, checkpointing=True)
    for stage in range(zero.stage + 1, 4):
        yield Lever(kind="stage", put={f"{_ZERO}.stage": stage}, step=stage)
    yield from _micro_batches(job, training)
    yield from _buckets(training)
    yield from _offloads(job, training)
    if judged.bill.host.fits is False:
        yield from _host_reliefs(training)


def _micro_batches(job: Job, training: Training) -> Iterator[Lever]:
    """Yield a few smaller micro batches, the largest first, with more accumulation."""
    if not job.batch.is_said:
        return
    micro, sequences = training.micro_batch_size, training.micro_batch_size * training.accumulation
    # Every size is a program of its own to look at: halves are enough of a choice.
    sizes = [size for size in (micro // 2**n for n in range(1, NUM_SIZES + 1)) if size]
    for step, size in enumerate(dict.fromkeys((*sizes, 1))):
        if size < micro and sequences % size == 0:
            put = {MICRO_BATCH: size, ACCUMULATION: sequences // size}
            yield Lever(kind=MICRO_BATCH, put=put, step=step)


def _buckets(training: Training) -> Iterator[Lever]:
    zero = training.zero
    if zero.reduce_bucket_size > _SMALL_BUCKET:
        yield Lever(kind="bucket", put={f"{_ZERO}.reduce_bucket_size": _SMALL_BUCKET})
    if zero.overlap_comm and zero.stage in (1, 2):
        yield Lever(kind="overlap", put={f"{_ZERO}.overlap_comm": False})
    if zero.max_live_parameters > _SMALL_LIVE:
        keys = (f"{_ZERO}.stage3_max_live_parameters", f"{_ZERO}.stage3_max_reuse_distance")
        yield Lever(kind="live", put=dict.fromkeys(keys, _SMALL_LIVE))


def _offloads(job: Job, training: Training) -> Iterator[Lever]:
    zero = training.zero
    optimizer = str(job.workload.optimizer.get("type", "")).lower()
    if not zero.offload_optimizer.enabled and optimizer in _CPU_OPTIMIZERS:
        put = {f"{_ZERO}.offload_optimizer.device": "cpu"}
        yield Lever(kind="offload_optimizer", put=put)
    if not zero.offload_param.enabled:
        yield Lever(kind="offload_param", put={f"{_ZERO}.offload_param.device": "cpu"})


def _host_reliefs(training: Training) -> Iterator[Lever]:
    """Yield what takes less of the host."""
    for name in ("offload_optimizer", "offload_param"):
        offload = getattr(training.zero, name)
        if offload.enabled and offload.pin_memory:
            yield Lever(kind=f"{name}.pin", put={f"{_ZERO}.{name}.pin_memory": False})
        if offload.enabled:
            yield Lever(kind=name, put={f"{_ZERO}.{name}.device": "none"})


def _more_gpus(job: Job, judged: Judged) -> str | None:
    """Return the smallest number of devices on which the same micro step fits."""
    training, split = judged.training, job.model_parallel

    def at(gpus: int) -> tuple[Job, Training]:
        larger = replace(job, local_ranks=max(job.local_ranks, min(gpus, GPUS_PER_NODE)))
        return larger, replace(training, world_size=max(gpus // split, 1))

    def fits(gpus: int) -> bool:
        larger, spread = at(gpus)
        has_experts = spread.world_size % training.expert_parallel_size == 0
        return spread.world_size > training.world_size and has_experts and _fits(larger, spread)

    gpus = smallest_fitting(fits)
    if gpus is None:
        return None
    larger, spread = at(gpus)
    steps = training.accumulation * training.world_size
    kept, rest = divmod(steps, spread.world_size)
    if rest == 0:
        spread = replace(spread, accumulation=kept)
    speed = predicted_speed(larger, spread) / predicted_speed(job, training)
    batch = f"{ACCUMULATION}: {kept}" if rest == 0 else "the global batch grows with them"
    return (
        f"{spread.world_size * split} x {job.device.name} instead of "
        f"{training.world_size * split}, {batch} (predicted: x{speed:.1f} tokens/s)"
    )


def _fits(job: Job, training: Training) -> bool:
    return job.screen(training).fits is True


def _needed(bill: Bill) -> int:
    return bill.device.peak_allocated_bytes + bill.device.outside_bytes


def _percent(speed: float) -> str:
    return "about the same" if abs(speed - 1) < _SAME else f"{speed - 1:+.0%}"
