"""What every evaluator must do, whatever it measures with.

A new evaluator that runs ranks passes each of `CHECKS`, in that order: the last one ends the
evaluator. One that runs nothing passes `CHECKS_OF_ANY`, in that order.
"""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from autotune.ds_config.build import MICRO_BATCH, build_ds_config
from autotune.evaluate import Evaluator, TrialRequest
from autotune.job.workload import Workload
from autotune.study.outcome import Outcome, Phase, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An evaluator and the workload that it was made for: at least 4 sequences per rank.

    Its ceiling lets stage 0 at a micro batch of 2 fit, but not a `reduce_bucket_size` of 5e8 at
    stage 2.
    """

    evaluator: Evaluator
    workload: Workload
    study_folder: Path | None = None
    """Where it keeps logs; None if it has none."""
    ranks: tuple[int, ...] | None = None
    """Those that it measures; None is all of the workload's."""

    def request(self, label: str, **zero: Any) -> TrialRequest:
        """Return a trial with some ZeRO settings and at least two micro steps."""
        config = {"zero_optimization": zero, MICRO_BATCH: 2}
        return TrialRequest(
            number=0,
            label=label,
            ds_config=build_ds_config(config, self.workload, {}),
            model_settings={"activation_checkpointing": False, "attn_implementation": "sdpa"},
        )

    def evaluate(self, request: TrialRequest) -> Outcome:
        return self.evaluator.evaluate(request, _ignore_progress)


Check: TypeAlias = Callable[[Subject], None]


def a_fitting_trial_completes_with_a_speed_and_a_peak(subject: Subject) -> None:
    marks: list[tuple[str, int, Phase, str]] = []
    outcome = subject.evaluator.evaluate(
        subject.request("complete", stage=0), lambda *mark: marks.append(mark)
    )
    assert outcome.status is Status.COMPLETE, outcome.failure
    assert outcome.failure is None
    assert outcome.evaluator == subject.evaluator.name
    assert outcome.duration_s > 0
    assert 0 < outcome.tokens_per_s.low <= outcome.tokens_per_s.mean
    assert outcome.peak_bytes > 0
    assert (outcome.modelled is None) == (outcome.evaluator != "modelled")
    assert {label for label, *_ in marks} == {"complete"}
    phases = [phase for _, rank, phase, _ in marks if rank == 0]
    assert phases == sorted(phases, key=list(Phase).index)


def a_complete_trial_has_a_measurement_of_its_ranks(subject: Subject) -> None:
    outcome = subject.evaluate(subject.request("of-ranks", stage=0))
    measured = outcome.measured
    ranks = subject.ranks or range(subject.workload.world_size)
    assert [rank.rank for rank in measured.ranks] == list(ranks)
    assert measured.tokens_per_step == subject.workload.tokens_per_step
    for rank in measured.ranks:
        assert len(rank.boundary_s) == len(rank.inner_s) == len(rank.host_loop_s)
        assert all(loop_s > 0 for loop_s in rank.host_loop_s)
        # Only real ranks have losses that mean anything.
        assert len(rank.losses) == (len(rank.boundary_s) + 1 if outcome.has_true_losses else 0)


def a_short_trial_is_composed_from_two_micro_steps(subject: Subject) -> None:
    request = subject.request("composed", stage=0)
    measured = subject.evaluate(request).measured
    assert measured.accumulation == request.ds_config["gradient_accumulation_steps"] > 1
    assert measured.timed_accumulation == 2
    assert all(inner_s > 0 for rank in measured.ranks for inner_s in rank.inner_s)


def whole_steps_time_every_micro_step(subject: Subject) -> None:
    request = replace(subject.request("whole", stage=0), whole_steps=True, same_weights=True)
    measured = subject.evaluate(request).measured
    assert measured.timed_accumulation == measured.accumulation
    assert not measured.composed


def a_trial_that_does_not_fit_says_how_much_it_needed(subject: Subject) -> None:
    outcome = subject.evaluate(
        subject.request("too-large", stage=2, reduce_bucket_size=500_000_000)
    )
    assert outcome.status.does_not_fit, outcome
    assert outcome.evaluator == subject.evaluator.name
    failure = outcome.failure
    assert failure is not None
    assert failure.needed_bytes
    assert failure.needed_bytes > 2 * 500_000_000 / 2
    assert failure.rank in range(subject.workload.world_size)
    assert failure.phase is not None
    assert failure.reason
    _check_log(subject, outcome)


def a_refused_config_is_invalid(subject: Subject) -> None:
    outcome = subject.evaluate(subject.request("refused", stage=7))
    assert outcome.status is Status.INVALID, outcome
    assert outcome.failure is not None
    assert "stage" in outcome.failure.reason
    assert outcome.failure.phase is Phase.INIT
    assert outcome.evaluator == subject.evaluator.name
    _check_log(subject, outcome)


def a_clearly_slower_trial_is_stopped_and_keeps_its_step_times(subject: Subject) -> None:
    request = replace(subject.request("slow", stage=0), best_tokens_per_s=1e12)
    outcome = subject.evaluate(request)
    assert outcome.status is Status.SLOW, outcome
    assert outcome.failure is not None
    assert "slower" in outcome.failure.reason
    assert outcome.tokens_per_s.mean < 1e12


def a_trial_as_fast_as_the_best_is_not_slow(subject: Subject) -> None:
    request = replace(subject.request("not-slow", stage=0), best_tokens_per_s=1.0)
    assert subject.evaluate(request).status is Status.COMPLETE


def every_outcome_survives_json(subject: Subject) -> None:
    requests = [
        subject.request("json-complete", stage=0),
        subject.request("json-too-large", stage=2, reduce_bucket_size=500_000_000),
        subject.request("json-refused", stage=7),
        replace(subject.request("json-slow", stage=0), best_tokens_per_s=1e12),
    ]
    for request in requests:
        outcome = subject.evaluate(request)
        text = json.dumps(outcome.to_json(), allow_nan=False)
        assert Outcome.from_json(json.loads(text)) == outcome


def as_many_trials_as_it_has_room_for_run_at_once(subject: Subject) -> None:
    capacity = subject.evaluator.capacity
    begun = threading.Barrier(capacity, timeout=60)
    waited: set[str] = set()

    def on_mark(label: str, rank: int, phase: Phase, where: str) -> None:
        if label not in waited:  # once per trial: a barrier for all trials
            waited.add(label)
            begun.wait()

    with ThreadPoolExecutor(capacity) as executor:
        outcomes = list(
            executor.map(
                lambda n: subject.evaluator.evaluate(
                    subject.request(f"beside-{n}", stage=0), on_mark
                ),
                range(capacity),
            )
        )
    assert [outcome.status for outcome in outcomes] == [Status.COMPLETE] * capacity
    assert len(waited) == capacity


def cancel_ends_running_trials_soon(subject: Subject) -> None:
    running = threading.Event()
    request = replace(subject.request("cancelled", stage=0), whole_steps=True)

    def on_mark(label: str, rank: int, phase: Phase, where: str) -> None:
        running.set()

    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(subject.evaluator.evaluate, request, on_mark)
        assert running.wait(60)
        began = time.monotonic()
        subject.evaluator.cancel()
        future.result(timeout=30)
        assert time.monotonic() - began < 5


CHECKS_OF_RANKS: tuple[Check, ...] = (
    a_complete_trial_has_a_measurement_of_its_ranks,
    a_short_trial_is_composed_from_two_micro_steps,
    whole_steps_time_every_micro_step,
)
CHECKS_OF_ANY: tuple[Check, ...] = (
    a_fitting_trial_completes_with_a_speed_and_a_peak,
    a_trial_that_does_not_fit_says_how_much_it_needed,
    a_refused_config_is_invalid,
    a_clearly_slower_trial_is_stopped_and_keeps_its_step_times,
    a_trial_as_fast_as_the_best_is_not_slow,
    every_outcome_survives_json,
    as_many_trials_as_it_has_room_for_run_at_once,
    cancel_ends_running_trials_soon,
)
CHECKS = (*CHECKS_OF_RANKS, *CHECKS_OF_ANY)


def _ignore_progress(label: str, rank: int, phase: Phase, where: str) -> None:
    """Ignore progress."""


def _check_log(subject: Subject, outcome: Outcome) -> None:
    assert outcome.failure is not None
    # A modelled trial has no log.
    assert bool(outcome.failure.log) == (outcome.evaluator != "modelled")
    if subject.study_folder is not None:
        assert outcome.failure.log
        assert (subject.study_folder / outcome.failure.log).read_text(encoding="utf-8")
