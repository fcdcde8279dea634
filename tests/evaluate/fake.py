"""An evaluator without ranks: a formula for speed and memory, with noise by seed."""

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune import dotted
from autotune.evaluate import CLEARLY_SLOWER, OnMark, TrialRequest
from autotune.job.workload import Workload
from autotune.study.outcome import (
    Failure,
    Measurement,
    Outcome,
    Phase,
    PhaseMemory,
    RankMeasurement,
    Status,
)

MIB = 2**20
NUM_STEPS = 6


@dataclass(slots=True, kw_only=True)
class FakeEvaluator:
    """Fulfils `autotune.evaluate.Evaluator` in microseconds."""

    workload: Workload
    ceiling_bytes: int
    name: str = "measured"
    capacity: int = 1
    noise: float = 0.0
    """Relative standard deviation of a run's speed."""
    seed: int = 0
    delay_s: float = 0.0
    """How long an evaluation takes."""
    override: Callable[[TrialRequest], Outcome | None] = lambda request: None
    """May decide an outcome, or raise; None leaves it to the formula."""
    requests: list[TrialRequest] = field(default_factory=list)
    """Every request so far, in the order of their launches."""
    most_at_once: int = 0
    _num_running: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def evaluate(self, request: TrialRequest, on_mark: OnMark) -> Outcome:
        with self._lock:
            self.requests.append(request)
            self._num_running += 1
            self.most_at_once = max(self.most_at_once, self._num_running)
        try:
            for phase in Phase:
                on_mark(request.label, 0, phase, "as if")
            self._cancelled.wait(self.delay_s)
            return self.override(request) or self._outcome(request)
        finally:
            with self._lock:
                self._num_running -= 1

    def cancel(self) -> None:
        self._cancelled.set()

    def step_s(self, ds_config: Mapping[str, Any], model_settings: Mapping[str, Any]) -> float:
        """Return the true seconds of a whole optimizer step."""
        inner_s, boundary_s = _micro_steps_s(ds_config, model_settings)
        return (int(ds_config["gradient_accumulation_steps"]) - 1) * inner_s + boundary_s

    def _outcome(self, request: TrialRequest) -> Outcome:
        config, settings = request.ds_config, request.model_settings
        stage = dotted.get(config, "zero_optimization.stage", 0)
        if stage not in (0, 1, 2, 3):
            return self.failed(Status.INVALID, f"stage {stage}: no such stage", phase=Phase.INIT)
        states = states_bytes(config, self.workload.world_size)
        peak = states + activation_bytes(config, settings)
        if peak > self.ceiling_bytes:
            return self.failed(
                Status.OVER_CEILING,
                f"asked for {peak} bytes of {self.ceiling_bytes}",
                phase=Phase.INIT if states > self.ceiling_bytes else Phase.FIRST_STEP,
                needed_bytes=peak,
            )
        measurement = self._measure(request, peak)
        best, mean = request.best_tokens_per_s, measurement.tokens_per_s.mean
        if best is not None and mean * CLEARLY_SLOWER < best:
            failure = Failure(reason="clearly slower", rank=0, phase=Phase.STEADY, log="l")
            return Outcome(
                status=Status.SLOW,
                evaluator=self.name,
                measurement=measurement,
                failure=failure,
                duration_s=1.0,
            )
        return Outcome(
            status=Status.COMPLETE, evaluator=self.name, measurement=measurement, duration_s=1.0
        )

    def _measure(self, request: TrialRequest, peak: int) -> Measurement:
        accumulation = int(request.ds_config["gradient_accumulation_steps"])
        timed = accumulation if request.whole_steps else min(accumulation, 2)
        inner_s, boundary_s = _micro_steps_s(request.ds_config, request.model_settings)
        # Noise belongs to a config, so that a trial asked again measures the same; confirmations
        # repeat a config, so theirs belongs to the run.
        key = request.label if request.whole_steps else json.dumps(request.ds_config)
        dice = random.Random(f"{self.seed} {key} {request.model_settings}")
        of_run = 1 + self.noise * dice.gauss()
        ranks = []
        for rank in range(self.workload.world_size):
            wobble = [of_run * (1 + 0.002 * dice.random()) for _ in range(NUM_STEPS)]
            ranks.append(
                RankMeasurement(
                    rank=rank,
                    inner_s=tuple((timed - 1) * inner_s * w for w in wobble),
                    boundary_s=tuple(boundary_s * w for w in wobble),
                    host_loop_s=(0.001,) * NUM_STEPS,
                    memory=(
                        PhaseMemory(phase=Phase.INIT, used_bytes=peak // 2),
                        PhaseMemory(phase=Phase.STEADY, used_bytes=peak),
                    ),
                    losses=tuple(7.0 - 0.01 * step for step in range(NUM_STEPS + 1)),
                    host_bytes=peak,
                )
            )
        return Measurement(
            tokens_per_step=self.workload.tokens_per_step,
            accumulation=accumulation,
            timed_accumulation=timed,
            ranks=tuple(ranks),
        )

    def failed(
        self,
        status: Status,
        reason: str,
        *,
        phase: Phase = Phase.STEADY,
        needed_bytes: int | None = None,
    ) -> Outcome:
        """Return the outcome of a trial that has no measurement."""
        failure = Failure(
            reason=reason, rank=0, phase=phase, needed_bytes=needed_bytes, log="logs/x"
        )
        return Outcome(status=status, evaluator=self.name, failure=failure, duration_s=1.0)


def states_bytes(ds_config: Mapping[str, Any], world_size: int) -> int:
    """Return what the formula says that model states and buckets take on a rank."""
    stage = int(dotted.get(ds_config, "zero_optimization.stage", 0))
    states = 64 * MIB // (world_size if stage else 1)
    bucket = int(dotted.get(ds_config, "zero_optimization.reduce_bucket_size", 500_000_000))
    return states + (2 * bucket if stage >= 2 else 0)


def activation_bytes(ds_config: Mapping[str, Any], model_settings: Mapping[str, Any]) -> int:
    """Return what the formula says that the activations of a micro batch take."""
    per_sequence = 4 * MIB if model_settings.get("activation_checkpointing") else 16 * MIB
    return int(ds_config["train_micro_batch_size_per_gpu"]) * per_sequence


def _micro_steps_s(
    ds_config: Mapping[str, Any], model_settings: Mapping[str, Any]
) -> tuple[float, float]:
    """Return the seconds of an inner and of the boundary micro step."""
    stage = int(dotted.get(ds_config, "zero_optimization.stage", 0))
    overlap = dotted.get(ds_config, "zero_optimization.overlap_comm", stage == 3)
    inner_s = 0.01 + 0.02 * int(ds_config["train_micro_batch_size_per_gpu"])
    if model_settings.get("activation_checkpointing"):
        inner_s *= 1.3
    if stage == 3:
        inner_s += 0.02 if overlap else 0.03
    return inner_s, inner_s + (0.03 if overlap else 0.05)


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
    """Wait for something that another thread brings about."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
