"""The cheapest changes that would make a job fit, by formulas: hundreds are tried in a moment.

A change keeps the global batch and what is trained. Its cost is the predicted change in speed,
never a measurement.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from autotune.errors import ConfigError
from autotune.gate.fit.performance import has_speed, predicted_speed
from autotune.gate.fit.remedies import Remedy, remedies_of
from autotune.job.batch import ACCUMULATION
from autotune.job.ceiling import GIB
from autotune.job.site import DEFAULT_GPUS_PER_NODE
from autotune.plan.planned_job import PlannedJob, is_assumed
from autotune.predict.gpu_counts import smallest_fitting
from autotune.predict.memory import error_margins
from autotune.predict.memory.estimate import MemoryEstimate
from autotune.predict.memory.fit import Fit
from autotune.predict.memory.predict import runs_under
from autotune.predict.training_job import ModelSettings, Training

NUM_CHANGES = 3
MOST_REPLAYS = 3
"""They take tens of milliseconds each."""
_SAME = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One or two remedies that make the job fit."""

    remedies: tuple[Remedy, ...]
    speed: float | None
    """Predicted tokens/s over those of the job as it is; None on a device of unknown speed."""
    training: Training
    estimate: MemoryEstimate

    @property
    def put(self) -> dict[str, Any]:
        """Dotted keys and their new values."""
        return {key: value for remedy in self.remedies for key, value in remedy.put.items()}

    @property
    def text(self) -> str:
        """One line for a reader."""
        parts = [
            "activation checkpointing in the model"
            if remedy.checkpointing
            else ", ".join(f"{key}: {json.dumps(value)}" for key, value in remedy.put.items())
            for remedy in self.remedies
        ]
        return " and ".join(parts)


def suggestion(job: PlannedJob, fit: Fit) -> str:
    """Return what would make the job fit, one line a change, the cheapest first."""
    device = job.device
    lines = [
        f"{change.text} (predicted: {_cost(change.speed)}"
        f"{_needed(change.estimate) / GIB:.0f} of {device.memory_bytes / GIB:.0f} GiB)"
        for change in cheapest_changes(job, fit)
    ]
    if (more := _more_gpus(job, fit)) is not None:
        lines.append(more)
    if not lines:
        return "no change of one or two keys makes it fit, nor do 4,096 GPUs: a smaller model"
    return "\n".join(lines)


def cheapest_changes(job: PlannedJob, fit: Fit, *, count: int = NUM_CHANGES) -> tuple[Change, ...]:
    """Return changes of one remedy, or of two where neither does alone, the cheapest first.

    They are found by formulas; what is not far below the device is then replayed under it.
    """
    base = predicted_speed(job, fit.training) if has_speed(job) else None
    remedies = tuple(remedies_of(job, fit))
    found: list[Change] = []
    for number in (1, 2):
        for chosen in combinations(remedies, number):
            if len({remedy.kind for remedy in chosen}) < number or _is_more(chosen, found):
                continue
            if (change := _tried(job, fit.settings, chosen, base)) is not None:
                found.append(change)
    return _confirmed(job, sorted(found, key=lambda change: -(change.speed or 0)), count)


def _confirmed(job: PlannedJob, changes: Sequence[Change], count: int) -> tuple[Change, ...]:
    """Return the first that run; a few may take a replay, after which only roomy ones count."""
    running: list[Change] = []
    replays = 0
    for change in changes:
        if len(running) == count:
            break
        allowed = job.limit_bytes - change.estimate.device.outside_bytes
        roomy = (
            change.estimate.device.peak_allocated_bytes
            <= error_margins.UNFRAGMENTED_SHARE * allowed
        )
        # Of an assumed shape nobody knows where its tensors would lie.
        if roomy or is_assumed(change.training) or _lies_flat(change.training):
            running.append(change)
        elif replays < MOST_REPLAYS:
            replays += 1
            limit_bytes = round(allowed / (1 + error_margins.margin(change.training)))
            if runs_under(change.training, job.device, limit_bytes):
                running.append(change)
    return tuple(running)


def _lies_flat(training: Training) -> bool:
    """Whether the formulas' margin surely covers fragmentation.

    Of ten such jobs from 1.3B to 13B, replays found limits up to 9 % above the formulas' peak,
    which keep 15 % free; at stage 3 it was 34 %, with an offloaded optimizer 60 %.
    """
    zero = training.zero
    return zero.stage in (1, 2) and not zero.offload_optimizer.enabled


def _is_more(chosen: tuple[Remedy, ...], found: list[Change]) -> bool:
    """Whether less does already: all remedies of a change that was found, as far or further."""
    steps = {remedy.kind: remedy.step for remedy in chosen}
    return any(
        all(steps.get(remedy.kind, -1) >= remedy.step for remedy in change.remedies)
        for change in found
    )


def _tried(
    job: PlannedJob, settings: ModelSettings, remedies: tuple[Remedy, ...], base: float | None
) -> Change | None:
    """Return the change if the job then fits, with the margin of the formulas kept free."""
    change = {key: value for remedy in remedies for key, value in remedy.put.items()}
    if any(remedy.checkpointing for remedy in remedies):
        settings = replace(settings, activation_checkpointing=True)
    try:
        training = job.training(settings, change)
    except ConfigError:
        return None
    estimate = job.screen(training)
    if not estimate.fits:
        return None
    speed = None if base is None else predicted_speed(job, training) / base
    return Change(remedies=remedies, speed=speed, training=training, estimate=estimate)


def _more_gpus(job: PlannedJob, fit: Fit) -> str | None:
    """Return the smallest number of devices on which the same micro step fits."""
    training, split = fit.training, job.model_parallel
    if training.world_size * split != job.gpus:
        # Inside groups of MiCS more devices do not help.
        return None

    def at(gpus: int) -> tuple[PlannedJob, Training]:
        per_node = max(job.ranks_per_node, DEFAULT_GPUS_PER_NODE)
        larger = replace(job, site=job.site.with_gpus(gpus, ranks_per_node=per_node))
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
    speed = ""
    if has_speed(job):
        times = predicted_speed(larger, spread) / predicted_speed(job, training)
        speed = f" (predicted: x{times:.1f} tokens/s)"
    batch = f"{ACCUMULATION}: {kept}" if rest == 0 else "the global batch grows with them"
    return (
        f"{spread.world_size * split} x {job.device.name} instead of "
        f"{training.world_size * split}, {batch}{speed}"
    )


def _fits(job: PlannedJob, training: Training) -> bool:
    return job.screen(training).fits is True


def _needed(estimate: MemoryEstimate) -> int:
    return estimate.device.peak_allocated_bytes + estimate.device.outside_bytes


def _cost(speed: float | None) -> str:
    if speed is None:
        return ""
    return f"{'about the same' if abs(speed - 1) < _SAME else f'{speed - 1:+.0%}'} tokens/s, "
