import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.errors import ConfigError, DispatchError
from autotune.evaluate import TrialRequest
from autotune.search.progress import Silent
from autotune.study.candidate import Candidate
from autotune.study.outcome import Outcome, Status
from autotune.study.store import StoredStudy
from tests.evaluate.fake import MIB, FakeEvaluator, wait_until
from tests.search.setting import (
    Setting,
    candidates,
    outcome,
    setting,
    small_space,
    statuses,
    tiny_workload,
)

FOUR_POINTS = """
parameters:
  zero_optimization.stage: {choices: [1, 2]}
  zero_optimization.overlap_comm: {choices: [false, true]}
"""
ROOMY_BYTES = 10_000 * MIB


def _identities(study: StoredStudy) -> list[str]:
    return [candidate.identity(2) for candidate in candidates(study.records())]


def _raise_once(error: BaseException, *, at: int) -> Callable[[TrialRequest], Outcome | None]:
    """Return an override that raises when the `at`-th evaluation is asked for."""
    num_asked = 0

    def override(request: TrialRequest) -> None:
        nonlocal num_asked
        num_asked += 1
        if num_asked == at:
            raise error

    return override


@pytest.mark.parametrize("capacity", [1, 2])
@pytest.mark.parametrize("trials", [1, 5, 14])
def test_the_budget_counts_launched_trials(tmp_path: Path, trials: int, capacity: int) -> None:
    here = setting(tmp_path / "s", capacity=capacity)
    study = here.search(trials=trials)
    assert len(study.records()) == len(here.evaluator.requests) == trials


def test_trials_that_fail_count_too(tmp_path: Path) -> None:
    here = setting(tmp_path / "s")
    here.evaluator.override = lambda _: here.evaluator.failed(Status.CRASHED, "as if")
    assert statuses(here.search(trials=12).records()) == [Status.CRASHED] * 12


def test_a_spent_time_budget_launches_nothing_more(tmp_path: Path) -> None:
    from autotune.search.budget import Budget
    from autotune.search.loop import Search

    here = setting(tmp_path / "s", delay_s=0.05)
    study = here.open().stored
    Search(
        study=study,
        evaluator=here.evaluator,
        space=here.space,
        workload=here.workload,
        base={},
        ceiling_bytes=here.ceiling_bytes,
        seed=1,
        budget=Budget(max_trials=1000, max_s=0.3),
        progress=Silent(),
    ).run()
    assert 1 <= len(study.records()) < 20


def test_no_run_is_tried_twice(tmp_path: Path) -> None:
    identities = _identities(setting(tmp_path / "s").search(trials=40))
    assert len(set(identities)) == len(identities) == 40


def test_a_finite_space_is_exhausted_and_the_search_ends(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", space=small_space(FOUR_POINTS), ceiling_bytes=ROOMY_BYTES)
    study = here.search(trials=1000)
    sampled = [c.values for c in candidates(study.records()) if not c.is_baseline]
    # Stage 2 without overlap is the baseline deepspeed-stage2, so it is not run again.
    assert len(sampled) == 3
    assert {"zero_optimization.stage": 2, "zero_optimization.overlap_comm": True} in sampled


def test_two_points_that_differ_in_a_key_that_cannot_act_are_one_trial(tmp_path: Path) -> None:
    space = small_space(
        """
        parameters:
          zero_optimization.stage: {choices: [0, 1]}
          zero_optimization.sub_group_size: {choices: [1000, 2000, 3000]}
        """
    )
    study = setting(tmp_path / "s", space=space, ceiling_bytes=ROOMY_BYTES).search(trials=100)
    sampled = [c.values for c in candidates(study.records()) if not c.is_baseline]
    assert sampled == [{"zero_optimization.stage": 1}]  # stage 0 is a baseline


def test_the_search_moves_on_where_most_draws_are_known(tmp_path: Path) -> None:
    space = small_space(
        """
        parameters:
          zero_optimization.stage: {choices: [1, 2]}
          zero_optimization.overlap_comm: {choices: [false, true]}
          train_micro_batch_size_per_gpu: {choices: [1, 2, 4, 8]}
          model.activation_checkpointing: {choices: [false, true]}
        """
    )
    study = setting(tmp_path / "s", space=space, ceiling_bytes=ROOMY_BYTES).search(trials=35)
    sampled = [c.identity(2) for c in candidates(study.records()) if not c.is_baseline]
    # 4 of the 35 are baselines, one of which (stage 2, micro batch 8) is one of the 32 points.
    assert len(set(sampled)) == len(sampled) == 31


def test_two_trials_run_at_once_where_there_is_room_for_two(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", capacity=2)
    both = threading.Barrier(2, timeout=10)  # passes only with two

    def override(request: TrialRequest) -> None:
        both.wait()

    here.evaluator.override = override
    study = here.search(trials=8)
    assert here.evaluator.most_at_once == 2
    assert len({request.number for request in here.evaluator.requests}) == len(study.records())


def test_baselines_are_never_stopped_early(tmp_path: Path) -> None:
    here = setting(tmp_path / "s")
    study = here.search(trials=25)
    for request, record in zip(here.evaluator.requests, study.records(), strict=True):
        if record.candidate.is_baseline:
            assert request.best_tokens_per_s is None
    sampled = [r for r in here.evaluator.requests if r.best_tokens_per_s is not None]
    assert sampled


def test_a_base_that_deepspeed_refuses_at_initialize_ends_the_search(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", base={"zero_optimization": {"stage": 2}}, capacity=2)
    here.evaluator.override = lambda request: (
        here.evaluator.failed(Status.INVALID, "ValueError: as if") if request.number == 0 else None
    )
    study = here.open().stored
    with pytest.raises(ConfigError, match="--base: DeepSpeed refuses it at initialize: ValueErr"):
        here.search(trials=20, study=study)
    assert statuses(study.records())[0] is Status.INVALID


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> list[Candidate]:
    """The candidates of an uninterrupted search."""
    here = setting(tmp_path_factory.mktemp("straight") / "s", noise=0.01)
    return candidates(here.search(trials=20).records())


@pytest.mark.parametrize(
    ("at", "error"),
    [
        (1, KeyboardInterrupt("Ctrl-C")),
        (7, DispatchError("a slot is gone")),
        (14, KeyboardInterrupt("Ctrl-C")),
        (20, DispatchError("a slot is gone")),
    ],
)
def test_a_resumed_search_makes_the_points_of_one_that_was_never_interrupted(
    tmp_path: Path, straight: list[Candidate], at: int, error: BaseException
) -> None:
    here = setting(tmp_path / "s", noise=0.01, override=_raise_once(error, at=at))
    study = here.open().stored
    with pytest.raises(type(error), match=str(error)):
        here.search(trials=20, study=study)
    finished = [r for r in study.records() if not r.interrupted]
    assert len(finished) == at - 1
    here.search(trials=20, study=study)
    assert study.records()[: at - 1] == tuple(finished)
    assert [r.interrupted for r in study.records()].count(True) == 1
    assert candidates(study.records()) == straight


def test_a_driver_killed_twice_loses_and_repeats_nothing(
    tmp_path: Path, straight: list[Candidate]
) -> None:
    """As after `kill -9`: the storage does not record that a trial has ended."""
    here = setting(tmp_path / "s", noise=0.01, on_disk=True)
    study = here.search(trials=3)
    for trials in (6, 9):
        study.begin(straight[len(candidates(study.records()))], here.space)
        assert study.records()[-1].outcome is None
        study = here.open(resume=True).stored
        here.search(trials=trials, study=study)
        assert candidates(study.records()) == straight[:trials]
    interrupted = [record for record in study.records() if record.interrupted]
    assert len(interrupted) == 2
    for record in interrupted:
        assert outcome(record).status is Status.CRASHED
        assert outcome(record).evaluator == "measured"
        assert outcome(record).failure is not None


def test_what_had_finished_beside_a_failure_is_kept(tmp_path: Path) -> None:
    """Six trials end before the driver looks, one of them with a dead slot."""
    here = setting(tmp_path / "s", capacity=6)
    here.evaluator.override = _raise_once(DispatchError("a slot is gone"), at=1)

    class Slow(Silent):
        def launched(self, label: str, candidate: Candidate) -> None:
            if label == "trial-0005":
                wait_until(lambda: len(here.evaluator.requests) == 6)
                wait_until(lambda: here.evaluator._num_running == 0)
                time.sleep(0.2)  # until the executor has noted it

    study = here.open().stored
    with pytest.raises(DispatchError, match="a slot is gone"):
        here.search(trials=6, study=study, progress=Slow())
    assert [record.interrupted for record in study.records()] == [True] + [False] * 5
    assert all(record.outcome is not None for record in study.records())


def test_a_failed_pool_ends_the_trials_beside_it(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", capacity=2, delay_s=60.0)
    begun = threading.Event()

    def on_evaluate(evaluator: FakeEvaluator) -> None:
        while len(evaluator.requests) < 2:
            begun.wait(0.01)
        evaluator.cancel()

    ender = threading.Thread(target=on_evaluate, args=[here.evaluator])
    here.evaluator.override = _raise_once(DispatchError("gone"), at=1)
    study = here.open().stored
    ender.start()
    with pytest.raises(DispatchError, match="gone"):
        here.search(trials=5, study=study)
    ender.join()
    assert all(record.outcome is not None for record in study.records())


def test_a_study_of_another_rank_count_is_searched_too(tmp_path: Path) -> None:
    workload = tiny_workload(gpus=1, global_batch_size=4)
    here: Setting = setting(tmp_path / "s", workload=workload)
    assert len(here.search(trials=12).records()) == 12
