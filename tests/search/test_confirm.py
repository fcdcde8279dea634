import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from autotune.evaluate import TrialRequest
from autotune.search.confirm import confirm, run_label
from autotune.search.progress import Silent
from autotune.study.candidate import Candidate, TrialRecord
from autotune.study.confirmation import LOSS_TOLERANCE, Confirmation
from autotune.study.outcome import Measurement, Outcome, Phase, PhaseMemory, RankMeasurement, Status
from tests.evaluate.fake import FakeEvaluator
from tests.search.setting import tiny_workload

WORKLOAD = tiny_workload()


def _run(tokens_per_s: float = 1000.0, losses: Sequence[float] = (7.0, 6.9)) -> Outcome:
    """Return a whole run with the same step time throughout."""
    step_s = WORKLOAD.tokens_per_step / tokens_per_s
    ranks = tuple(
        RankMeasurement(
            rank=rank,
            inner_s=(0.0,) * 3,
            boundary_s=(step_s,) * 3,
            memory=(PhaseMemory(phase=Phase.STEADY, used_bytes=100),),
            losses=tuple(losses),
        )
        for rank in range(2)
    )
    measurement = Measurement(
        tokens_per_step=WORKLOAD.tokens_per_step, accumulation=1, timed_accumulation=1, ranks=ranks
    )
    return Outcome(status=Status.COMPLETE, evaluator="measured", measurement=measurement)


def _failed(status: Status = Status.CRASHED) -> Outcome:
    return FakeEvaluator(workload=WORKLOAD, ceiling_bytes=1).failed(status, "as if")


def _confirmation(
    winner_runs: Sequence[Outcome], baseline_runs: Sequence[Outcome], *, baseline: int | None = 0
) -> Confirmation:
    return Confirmation(
        winner=7,
        baseline=baseline,
        winner_runs=tuple(winner_runs),
        baseline_runs=tuple(baseline_runs),
    )


def _record(number: int, stage: int) -> TrialRecord:
    config = {
        "zero_optimization": {"stage": stage},
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "train_batch_size": 16,
    }
    candidate = Candidate(
        source="sampled" if number else "deepspeed-stage0", ds_config=config, model_settings={}
    )
    return TrialRecord(number=number, candidate=candidate, outcome=None)


def _confirm(
    override: Callable[[TrialRequest], Outcome | None], *, num_rounds: int = 3, **fake: Any
) -> tuple[Confirmation, list[str]]:
    evaluator = FakeEvaluator(workload=WORKLOAD, ceiling_bytes=2**40, override=override, **fake)
    confirmation = confirm(
        evaluator, _record(7, 1), _record(0, 0), num_rounds=num_rounds, progress=Silent()
    )
    assert all(r.whole_steps and r.same_weights for r in evaluator.requests)
    assert all(r.best_tokens_per_s is None for r in evaluator.requests)
    return confirmation, [request.label for request in evaluator.requests]


def test_the_runs_are_interleaved_and_take_turns_in_going_first() -> None:
    _, labels = _confirm(lambda _: None)
    roles = [label.split("-")[2] for label in labels]
    assert roles == ["baseline", "winner", "winner", "baseline", "baseline", "winner"]
    assert len(set(labels)) == len(labels)


def test_a_winner_that_fails_once_is_not_run_again() -> None:
    confirmation, labels = _confirm(
        lambda request: _failed() if request.label == run_label(7, "winner", 1) else None
    )
    assert run_label(7, "winner", 1) in labels
    assert run_label(7, "winner", 2) not in labels
    assert confirmation.failure == "crashed: as if"
    assert confirmation.ratio is None
    assert confirmation.keeps_baseline
    assert confirmation.exported == 0


def test_the_ratio_is_taken_round_by_round() -> None:
    """A machine that slows down in one round slows both down."""
    slow_round = 0.5
    confirmation = _confirmation(
        [_run(1100), _run(1100 * slow_round), _run(1100)],
        [_run(1000), _run(1000 * slow_round), _run(1000)],
    )
    assert confirmation.ratio is not None
    assert confirmation.ratio.mean == pytest.approx(1.1)
    assert confirmation.ratio.low == pytest.approx(1.1)
    assert confirmation.exported == 7


def test_a_winner_within_the_spread_is_not_exported() -> None:
    confirmation = _confirmation(
        [_run(1200), _run(950), _run(1010)], [_run(1000), _run(1000), _run(1000)]
    )
    assert confirmation.ratio is not None
    assert confirmation.ratio.mean > 1 > confirmation.ratio.low
    assert confirmation.keeps_baseline
    assert confirmation.exported == 0
    assert confirmation.exported_runs == confirmation.baseline_runs


def test_a_slower_winner_is_not_exported() -> None:
    assert _confirmation([_run(900)] * 3, [_run(1000)] * 3).exported == 0


def test_one_round_alone_proves_nothing() -> None:
    assert _confirmation([_run(2000)], [_run(1000)]).exported == 0


def test_losses_that_differ_from_the_baselines_are_a_failure() -> None:
    apart = 7.0 * (1 + 2 * LOSS_TOLERANCE)
    confirmation = _confirmation([_run(2000), _run(2000, (apart, 6.9))], [_run(1000)] * 2)
    assert confirmation.failure is not None
    assert confirmation.failure.startswith("diverged: its losses differ from the baseline's")
    assert confirmation.exported == 0


def test_losses_within_the_tolerance_are_the_same_training() -> None:
    near = 7.0 * (1 + LOSS_TOLERANCE / 2)
    confirmation = _confirmation([_run(2000, (near, 6.9))] * 2, [_run(1000)] * 2)
    assert confirmation.failure is None
    assert confirmation.loss_difference == pytest.approx(LOSS_TOLERANCE / 2)
    assert confirmation.exported == 7


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_a_number_is_a_failure(loss: float) -> None:
    for losses in ((7.0, loss), (loss, 6.9)):
        confirmation = _confirmation([_run(2000, losses)] * 2, [_run(1000)] * 2)
        assert confirmation.failure == "diverged: its loss is not a finite number"
        assert confirmation.exported == 0


def test_a_baseline_with_a_loss_that_is_not_a_number_is_not_a_reference() -> None:
    confirmation = _confirmation([_run(2000)] * 2, [_run(1000, (7.0, math.nan))] * 2)
    assert confirmation.baseline_failure == "diverged: its loss is not a finite number"
    assert confirmation.loss_difference is None
    assert confirmation.exported == 7


def test_a_baseline_that_fails_leaves_the_winner_without_a_ratio() -> None:
    confirmation = _confirmation([_run(900)] * 2, [_run(1000), _failed(Status.OVER_CEILING)])
    assert not confirmation.baseline_holds
    assert confirmation.baseline_failure == "over_ceiling: as if"
    assert confirmation.ratio is None
    assert confirmation.exported == 7


def test_without_a_baseline_that_fits_the_winner_is_exported() -> None:
    confirmation = _confirmation([_run(900)] * 2, [], baseline=None)
    assert not confirmation.keeps_baseline
    assert confirmation.exported == 7


def test_if_both_fail_nothing_is_exported() -> None:
    assert _confirmation([_failed()], [_failed()]).exported is None


def test_a_baseline_that_nothing_else_came_near_is_run_by_itself() -> None:
    evaluator = FakeEvaluator(workload=WORKLOAD, ceiling_bytes=2**40)
    only = _record(0, 0)
    confirmation = confirm(evaluator, only, only, num_rounds=3, progress=Silent())
    assert len(evaluator.requests) == 3
    assert confirmation.keeps_baseline
    assert confirmation.exported == 0
    assert confirmation.ratio is None


def test_a_confirmation_survives_json() -> None:
    confirmation = _confirmation([_run(1100), _failed()], [_run(1000), _run(1000)])
    as_json = json.loads(json.dumps(confirmation.to_json(), allow_nan=False))
    assert Confirmation.from_json(as_json) == confirmation


def _share_claimed_better(speed_up: float, noise: float, *, num: int = 400) -> float:
    """Return how often a confirmation of 5 rounds calls the winner better."""
    record, base = _record(7, 1), _record(0, 0)
    claims = 0
    for seed in range(num):
        evaluator = FakeEvaluator(workload=WORKLOAD, ceiling_bytes=2**40, noise=noise, seed=seed)
        truth = [evaluator.step_s(r.candidate.ds_config, {}) for r in (record, base)]
        assert truth[0] == truth[1]
        confirmation = confirm(
            _Faster(evaluator, speed_up), record, base, num_rounds=5, progress=Silent()
        )
        claims += confirmation.exported == record.number
    return claims / num


class _Faster:
    """The fake, with a winner that is faster by a factor."""

    def __init__(self, inner: FakeEvaluator, speed_up: float) -> None:
        self._inner, self._speed_up = inner, speed_up
        self.name, self.capacity, self.cancel = inner.name, inner.capacity, inner.cancel

    def evaluate(self, request: TrialRequest, on_mark: Any) -> Outcome:
        outcome = self._inner.evaluate(request, on_mark)
        if "winner" not in request.label:
            return outcome
        as_json = outcome.to_json()
        for rank in as_json["measurement"]["ranks"]:
            for name in ("inner_s", "boundary_s"):
                rank[name] = [seconds / self._speed_up for seconds in rank[name]]
        return Outcome.from_json(as_json)


def test_better_is_hardly_ever_claimed_of_an_equal() -> None:
    assert _share_claimed_better(1.0, noise=0.03) <= 0.05


def test_better_is_nearly_always_claimed_of_what_is_clearly_faster() -> None:
    assert _share_claimed_better(1.10, noise=0.01) >= 0.98


def test_labels_of_two_finalists_differ_for_the_same_baseline() -> None:
    assert run_label(7, "baseline", 0) != run_label(9, "baseline", 0)


@pytest.mark.parametrize("losses", [(9.0, 8.0), (math.nan, 7.0), ()])
def test_losses_of_emulated_ranks_are_not_compared(losses: Sequence[float]) -> None:
    winner = [replace(_run(1_200, losses), evaluator="emulated")] * 3
    baseline = [replace(_run(1_000, ()), evaluator="emulated")] * 3
    confirmation = _confirmation(winner, baseline)
    assert confirmation.loss_difference is None
    assert confirmation.failure is None
    assert confirmation.exported == 7


def test_every_run_counts_once_where_the_baseline_was_confirmed_by_itself() -> None:
    runs = (_run(), _run(1010.0))
    alone = replace(_confirmation(runs, runs), baseline=7)
    assert alone.runs == runs
    assert [row.role for row in alone.compared] == ["baseline"]
    both = _confirmation(runs, (_run(900.0),))
    assert both.runs == (*runs, _run(900.0))
