"""Predicts the exported config on `--target-gpus`, and which keys should change there."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from autotune import dotted
from autotune.ds_config.build import MICRO_BATCH, build_ds_config, nearest_divisors
from autotune.ds_config.fields.table import default_of
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.job.device import Device
from autotune.job.site import DEFAULT_GPUS_PER_NODE
from autotune.job.workload import Workload
from autotune.predict.calibration import Calibration
from autotune.predict.links.communication import Group
from autotune.predict.memory.predict import Surroundings, predict_memory
from autotune.predict.speed_calibration import SpeedCalibration
from autotune.predict.throughput import SpeedSurroundings, Throughput
from autotune.predict.throughput.uncertainty import ratio_log_width
from autotune.search.memory_screen import Screen
from autotune.search.model_proposals import fastest_first
from autotune.search.speed_model import SpeedModel
from autotune.space import Choices, SearchSpace
from autotune.space.proposal import MODEL_PREFIX, Scalar
from autotune.study.candidate import Candidate, candidate_of_proposal, training_of
from autotune.tuning.prepare import PreparedStudy

MATTERS = 0.01
"""A key is changed if a step gets this much faster; smaller gains are below the model's error."""
_MAX_REPLAYED = 8
"""Most points to replay: the fastest that fit by closed form, until one fits by replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The ranks on which the exported config will run."""

    workload: Workload
    space: SearchSpace
    """Bound to that workload."""
    base: Mapping[str, Any]
    """The user's ds_config; empty when there is none."""
    memory: Surroundings
    speed: SpeedSurroundings
    here: SpeedModel
    """Of the study's own ranks, with real communication."""
    memory_calibration: Calibration = field(default_factory=Calibration)
    """Of the study's trials."""
    speed_calibration: SpeedCalibration = field(default_factory=SpeedCalibration)

    def screen(self) -> Screen:
        """Return the memory screen of the target."""
        assert self.memory.ceiling_bytes is not None
        return Screen(
            workload=self.workload,
            device=self.memory.device,
            ceiling_bytes=self.memory.ceiling_bytes,
            host_bytes=self.memory.host_bytes,
            local_ranks=self.memory.local_ranks,
            calibration=self.memory_calibration,
        )

    def speed_model(self) -> SpeedModel:
        """Return the speed model of the target."""
        return SpeedModel(
            workload=self.workload, surroundings=self.speed, calibration=self.speed_calibration
        )


def target_of(
    study: PreparedStudy, device: Device, around: SpeedSurroundings, *, ceiling_bytes: int
) -> Target | None:
    """Return the target of `--target-gpus`; None if it was not given.

    Nodes have `--gpus-per-node` ranks, else 8. All else is as in the study, with real
    communication.

    Args:
        study: what is tuned.
        device: what every rank runs on.
        around: what decides the speed of the study's trials.
        ceiling_bytes: the most that a rank may use.
    """
    workload = study.target_workload
    if workload is None:
        return None
    local_ranks = min(
        study.resolved.job.gpus_per_node or DEFAULT_GPUS_PER_NODE, workload.world_size
    )
    return Target(
        workload=workload,
        space=study.unbound_space.bind(workload, study.base),
        base=study.base,
        memory=Surroundings(
            device=device,
            ceiling_bytes=ceiling_bytes,
            local_ranks=local_ranks,
            host_bytes=study.node_host_bytes,
        ),
        speed=replace(around.real(), local_ranks=local_ranks),
        here=SpeedModel(workload=study.workload, surroundings=around.real()),
    )


def predict_target(target: Target, exported: Candidate, *, seed: int) -> dict[str, Any]:
    """Return the predictions for a study's exported config on the target, as JSON values.

    Args:
        target: where.
        exported: the study's.
        seed: of the points to compare with.
    """
    screen, speed = target.screen(), target.speed_model()
    here = replace(target.here, calibration=target.speed_calibration)
    there = _moved(exported, target.workload)
    found: dict[str, Any] = {
        "evaluator": EvaluatorKind.MODELLED,
        "gpus": target.workload.world_size,
        "gpus_per_node": target.speed.local_ranks,
        "global_batch_size": target.workload.global_batch_size,
        "links": target.speed.links.source_for(
            Group.whole(target.workload.world_size, local_ranks=target.speed.local_ranks)
        ),
        "corrected_by_trials": len(target.speed_calibration.trials),
        "ds_config": dict(there.ds_config),
    }
    predicted, corrected = speed.predict(there), speed.corrected(there)
    if predicted is None or corrected is None:
        return found | {"problem": "the models cannot read this config", "tokens_per_s": None}
    estimate = predict_memory(training_of(there, target.workload), target.memory)
    best = _best(target, there, seed=seed, screen=screen, speed=speed)
    return found | {
        "problem": None if estimate.fits else "it is predicted not to fit there",
        "tokens_per_s": _interval(corrected, predicted),
        "step_s": corrected.step_s,
        "communication_share": corrected.items["communication"] / corrected.step_s,
        "memory": _memory(
            target, estimate.device.peak_allocated_bytes, estimate.device.outside_bytes
        )
        | {
            "margin": target.memory_calibration.margin(estimate.device.margin),
            "fits": estimate.fits,
        },
        "moves": _moves(exported, best),
        "best": _best_to_json(best, corrected, speed)
        | {"ratio_here": _ratio(here, best, exported)},
    }


def _interval(corrected: Throughput, predicted: Throughput) -> dict[str, float]:
    """Return a corrected speed with the wider of the corrected and the uncorrected interval.

    Trials on fewer ranks, which may be emulated, do not reduce the error on the target.
    """
    value = corrected.tokens_per_s
    width = max(p.tokens_per_s_high / p.tokens_per_s for p in (corrected, predicted))
    return {"value": value, "low": value / width, "high": value * width}


def _memory(target: Target, allocated_bytes: int, outside_bytes: int) -> dict[str, Any]:
    corrected = allocated_bytes * target.memory_calibration.factor
    return {
        "peak_bytes": round(corrected) + outside_bytes,
        "ceiling_bytes": target.memory.ceiling_bytes,
    }


def _best_to_json(best: Candidate, there: Throughput, speed: SpeedModel) -> dict[str, Any]:
    predicted = speed.corrected(best)
    assert predicted is not None
    ratio = predicted.tokens_per_s / there.tokens_per_s
    probed = there.links == "probe"
    width = math.exp(ratio_log_width(predicted.items, there.items, probed=probed))
    return {
        "ds_config": dict(best.ds_config),
        "model_settings": dict(best.model_settings),
        "ratio": ratio,
        "ratio_low": ratio / width,
        "ratio_high": ratio * width,
    }


def _moved(candidate: Candidate, workload: Workload) -> Candidate:
    """Return the same config on other ranks, with the nearest micro batch that divides."""
    micro = nearest_divisors(workload.sequences_per_rank, candidate.ds_config[MICRO_BATCH])[0]
    values = dict(candidate.values)
    if MICRO_BATCH in values:
        values[MICRO_BATCH] = micro
    return replace(
        candidate,
        ds_config=build_ds_config(candidate.ds_config, workload, {MICRO_BATCH: micro}),
        values=values,
    )


def _ratio(speed: SpeedModel, one: Candidate, other: Candidate) -> float | None:
    """Return the predicted speed ratio of two configs on the study's ranks; None if unknown."""
    predicted = [speed.corrected(_moved(c, speed.workload)) for c in (one, other)]
    first, second = predicted
    return first.tokens_per_s / second.tokens_per_s if first and second else None


def _best(
    target: Target, there: Candidate, *, seed: int, screen: Screen, speed: SpeedModel
) -> Candidate:
    """Return the fastest config on the target, with as few changes from a given one as possible."""
    near = _Neighbours(target=target, screen=screen, speed=speed)
    drawn = fastest_first(target.space, base=target.base, seed=seed, screen=screen, speed=speed)
    fitting = (c for c in islice(drawn, _MAX_REPLAYED) if screen.judge(c) is None)
    start = next(fitting, there)
    fits = screen.judge(there) is None
    if fits and near.rate(there) >= near.rate(start):
        start = there
    best = near.improved(start)
    if fits and near.rate(best) < near.rate(there) * (1 + MATTERS):
        return there
    return near.likened(best, there)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Neighbours:
    """Finds configs that differ in one key."""

    target: Target
    screen: Screen
    speed: SpeedModel

    def rate(self, candidate: Candidate) -> float:
        """Return the predicted tokens/s, corrected by the study's trials."""
        predicted = self.speed.corrected(candidate)
        return predicted.tokens_per_s if predicted else 0.0

    def with_values(self, values: Mapping[str, Scalar]) -> Candidate:
        target = self.target
        return candidate_of_proposal(
            target.space.canonical(values), target.space, base=target.base, workload=target.workload
        )

    def improved(self, start: Candidate) -> Candidate:
        """Change one key at a time while that is clearly faster, in one pass."""
        best = start
        for parameter in self.target.space.parameters:
            if not isinstance(parameter.kind, Choices) or parameter.key not in best.values:
                continue
            for choice in parameter.kind.values:
                other = self.with_values({**best.values, parameter.key: choice})
                faster = self.rate(other) > self.rate(best) * (1 + MATTERS)
                if faster and self.screen.judge(other) is None:
                    best = other
        return best

    def likened(self, best: Candidate, there: Candidate) -> Candidate:
        """Reset keys to those of another config where that costs less than `MATTERS`."""
        least = self.rate(best) * (1 - MATTERS)
        for key in list(best.values):
            if best.values.get(key) == there.values.get(key):
                continue
            values = {k: v for k, v in best.values.items() if k != key}
            if key in there.values:
                values[key] = there.values[key]
            other = self.with_values(values)
            if self.rate(other) >= least and self.screen.judge(other) is None:
                best = other
        return best


def _moves(exported: Candidate, best: Candidate) -> dict[str, dict[str, Any]]:
    """Return the searched keys whose values differ."""
    pairs = {key: (_value(exported, key), _value(best, key)) for key in best.values}
    return {key: {"from": was, "to": now} for key, (was, now) in pairs.items() if was != now}


def _value(candidate: Candidate, key: str) -> Any:
    if key.startswith(MODEL_PREFIX):
        return candidate.model_settings.get(key.removeprefix(MODEL_PREFIX))
    return dotted.get(candidate.ds_config, key, default_of(key))
