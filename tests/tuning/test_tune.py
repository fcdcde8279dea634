"""A whole study, searched, confirmed and written, of the fake evaluator."""

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import DispatchError, StoreError
from autotune.evaluate import TrialRequest
from autotune.job.model_shape import load_model_shape
from autotune.search.progress import Silent
from autotune.study.outcome import Outcome, Phase, Status
from autotune.study.store import StoredStudy
from autotune.study.view import StudyView
from autotune.tuning import TuneResult, run_study
from tests.asked import tune_request
from tests.evaluate.fake import MIB
from tests.job.workloads import resolve_workload
from tests.search.setting import FEW_POINTS, Setting, setting, small_space, tiny_workload

ONE_KEY = """
parameters:
  zero_optimization.overlap_comm: {choices: [false, true]}
"""


def _run(here: Setting, *, trials: int = 20, rounds: int = 3, resume: bool = False) -> TuneResult:
    request = tune_request(model="tiny", gpus=2, trials=trials, confirm_rounds=rounds)
    return run_study(
        here.open(resume=resume), here.evaluator, here.folder, request=request, progress=Silent()
    )


def _failing(here: Setting, *labels: str) -> Callable[[TrialRequest], Outcome | None]:
    """Return an override by which runs fail whose label contains one of some texts."""

    def override(request: TrialRequest) -> Outcome | None:
        if any(label in request.label for label in labels):
            return here.evaluator.failed(Status.CRASHED, "as if")
        return None

    return override


def _written(here: Setting) -> dict[str, Any]:
    record = (here.folder / "record.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(record, parse_constant=_no_constant)
    return loaded


def _no_constant(name: str) -> float:
    raise AssertionError(f"{name} is not JSON")


def _confirmed(here: Setting) -> list[str]:
    return [r.label for r in here.evaluator.requests if r.label.startswith("confirm")]


def test_a_study_ends_with_the_fastest_config_that_fits(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS))
    result = _run(here, trials=26)
    record = _written(here)
    assert result.record == record
    assert not record["keeps_baseline"]
    assert record["source"] == "sampled"
    assert record["baseline"]["ratio_low"] > 1
    exported = result.study.exported
    assert exported is not None
    assert record["trial"] == exported.number
    everything_complete = [
        r.outcome.measured.tokens_per_s.mean
        for r in result.study.records
        if r.outcome is not None and r.outcome.status is Status.COMPLETE
    ]
    assert exported.outcome is not None
    assert exported.outcome.measured.tokens_per_s.mean == max(everything_complete)


def test_if_nothing_beats_the_baseline_it_is_kept(tmp_path: Path) -> None:
    base = {"zero_optimization": {"stage": 0}, "train_micro_batch_size_per_gpu": 4}
    here = setting(tmp_path / "s", base=base, space=small_space(ONE_KEY))
    _run(here)
    record = _written(here)
    assert record["keeps_baseline"]
    assert record["baseline"]["name"] == record["source"] == "base"
    assert (record["baseline"]["ratio"], record["baseline"]["ratio_low"]) == (1.0, 1.0)


def test_a_finalist_that_fails_gives_way_to_the_next(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS))
    first = _run(here, trials=26).study.exported
    assert first is not None
    again = setting(tmp_path / "t", noise=0.001, space=small_space(FEW_POINTS))
    again.evaluator.override = _failing(again, f"confirm-{first.number:04d}-winner")
    result = _run(again, trials=26)
    assert result.study.exported is not None
    assert result.study.exported.number != first.number
    assert not result.study.exported.candidate.is_baseline
    assert [c.failure is None for c in result.study.confirmations] == [False, True]
    labels = _confirmed(again)
    assert len(set(labels)) == len(labels)


def test_what_was_confirmed_stands_until_something_else_is(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS), on_disk=True)
    first = _run(here, trials=26)
    before = _written(here)
    here.evaluator.override = _failing(here, "confirm")
    again = _run(here, trials=26, rounds=4, resume=True)
    assert len(_confirmed(here)) > 6
    assert again.study.confirmations == first.study.confirmations
    assert _written(here)["tokens_per_s"] == before["tokens_per_s"]
    here.evaluator.override = _failing(here)
    third = _run(here, trials=26, rounds=4, resume=True)
    assert third.study.exported == first.study.exported
    assert [len(c.winner_runs) for c in third.study.confirmations] == [4]


def test_what_was_confirmed_is_not_confirmed_again(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS), on_disk=True)
    first = _run(here, trials=26)
    ran = len(_confirmed(here))
    assert ran == 6
    for rounds in (3, 2):
        again = _run(here, trials=26, rounds=rounds, resume=True)
        assert again.study.confirmations == first.study.confirmations
        assert again.record == first.record
    assert len(_confirmed(here)) == ran
    _run(here, trials=26, rounds=5, resume=True)
    assert len(_confirmed(here)) == ran + 10


@pytest.mark.parametrize("role", ["winner", "baseline"])
def test_what_failed_when_it_was_confirmed_is_confirmed_again(tmp_path: Path, role: str) -> None:
    """It may have been the machine."""
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS), on_disk=True)
    here.evaluator.override = _failing(here, role)
    _run(here, trials=26)
    here.evaluator.override = _failing(here)
    again = _run(here, trials=26, resume=True)
    (confirmation,) = again.study.confirmations
    assert confirmation.failure is None
    assert confirmation.baseline_failure is None
    assert confirmation.ratio is not None


def test_another_winner_is_confirmed(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS), on_disk=True)
    (first,) = _run(here, trials=8).study.confirmations
    again = _run(here, trials=26, resume=True)
    (second,) = again.study.confirmations
    assert (second.winner, second.ended_at) != (first.winner, first.ended_at)
    assert second.winner != first.winner


def test_a_finalist_that_diverges_gives_way_too(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS))

    def override(request: TrialRequest) -> Outcome | None:
        if "winner" not in request.label:
            return None
        as_json = here.evaluator._outcome(request).to_json()
        for rank in as_json["measurement"]["ranks"]:
            rank["losses"] = [math.nan] * len(rank["losses"])
        return Outcome.from_json(as_json)

    here.evaluator.override = override
    result = _run(here, trials=26)
    assert [bool(c.failure) for c in result.study.confirmations] == [True] * 4
    assert all("diverged" in str(c.failure) for c in result.study.confirmations)
    # The baseline, run last by itself, is called winner too; the runs beside the finalists hold.
    assert result.study.exported is not None
    assert result.study.exported.candidate.is_baseline


def test_if_every_finalist_fails_the_baseline_is_confirmed_by_itself(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS))
    baseline = _run(here, trials=26).study.best_baseline
    assert baseline is not None
    again = setting(tmp_path / "t", noise=0.001, space=small_space(FEW_POINTS))

    def override(request: TrialRequest) -> Outcome | None:
        failing = "winner" in request.label and request.number != baseline.number
        return again.evaluator.failed(Status.OVER_CEILING, "as if") if failing else None

    again.evaluator.override = override
    result = _run(again, trials=26)
    assert len(result.study.confirmations) == 4
    record = _written(again)
    assert record["source"] == baseline.candidate.source
    assert record["num_runs"] == 3
    assert record["keeps_baseline"]


def test_where_no_baseline_fits_the_winner_stands_alone(tmp_path: Path) -> None:
    # Of the stage-2 points only those with small buckets fit; Hugging Face's are small as well.
    here = setting(tmp_path / "s", ceiling_bytes=100 * MIB, noise=0.001)
    formula = here.evaluator._outcome
    here.evaluator.override = lambda request: (
        here.evaluator.failed(Status.OVER_CEILING, "as if", phase=Phase.INIT)
        if request.ds_config["zero_optimization"].get("reduce_bucket_size", 5e8) in (5e8, 16384)
        else formula(request)
    )
    _run(here, trials=26)
    record = _written(here)
    assert record["source"] == "sampled"
    assert record["baseline"] is None
    assert record["tokens_per_s"]["low"] > 0


def test_where_only_baselines_fit_the_best_is_confirmed_and_kept(tmp_path: Path) -> None:
    here = setting(tmp_path / "s")
    here.evaluator.override = lambda request: (
        here.evaluator.failed(Status.CRASHED, "as if")
        if request.best_tokens_per_s is not None  # all but the first trials
        else None
    )
    result = _run(here, trials=14)
    record = _written(here)
    assert record["keeps_baseline"]
    assert record["num_runs"] == 3
    assert len(_confirmed(here)) == 3
    assert result.study.exported == result.study.best_baseline


def test_where_nothing_fits_only_the_trials_are_written(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", ceiling_bytes=MIB)
    result = _run(here, trials=6)
    assert result.record is None
    assert sorted(path.name for path in here.folder.iterdir()) == ["trials.csv"]


def test_a_baseline_that_fails_its_confirmation_is_in_the_record(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS))
    here.evaluator.override = _failing(here, "-baseline-1")
    _run(here, trials=26)
    record = _written(here)
    assert record["source"] == "sampled"
    baseline = record["baseline"]
    assert baseline["failure"] == "crashed: as if"
    assert (baseline["tokens_per_s"], baseline["ratio"], baseline["ratio_high"]) == (None,) * 3


@pytest.mark.parametrize("rounds", [1, 2])
def test_infinite_intervals_never_reach_the_files(tmp_path: Path, rounds: int) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS))
    _run(here, trials=20, rounds=rounds)
    record = _written(here)  # refuses Infinity and NaN
    assert (record["tokens_per_s"]["high"] is None) == (rounds == 1)


def test_what_had_finished_is_written_when_the_pool_fails(tmp_path: Path) -> None:
    here = setting(tmp_path / "s")

    def override(request: TrialRequest) -> None:
        if request.number == 5:
            raise DispatchError("a slot is gone")

    here.evaluator.override = override
    with pytest.raises(DispatchError, match="a slot is gone"):
        _run(here)
    lines = (here.folder / "trials.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("label,trial,source,evaluator,status")
    assert {line.split(",")[0] for line in lines[1:]} == {f"trial-{n:04d}" for n in range(6)}


def test_files_that_cannot_be_written_do_not_hide_why_the_search_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = setting(tmp_path / "s")

    def override(_: TrialRequest) -> None:
        raise DispatchError("a slot is gone")

    def refuse(*_: object) -> None:
        raise StoreError("trials.csv: cannot be written")

    here.evaluator.override = override
    monkeypatch.setattr("autotune.tuning.pipeline.write_study_files", refuse)
    with pytest.raises(DispatchError, match="a slot is gone"):
        _run(here)
    here.evaluator.override = lambda _: None
    with pytest.raises(StoreError, match="cannot be written"):
        _run(setting(tmp_path / "t"))


def test_a_resume_after_the_end_searches_on_and_confirms_again(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", noise=0.001, on_disk=True)
    _run(here, trials=9)
    before = StudyView.of(StoredStudy("s", here.url, create=False)).records
    result = _run(here, trials=12, resume=True)
    assert result.study.records[:9] == before
    assert len(result.study.records) == 12


def _changed(here: Setting, **changes: Any) -> Setting:
    base = changes.get("base", here.base)
    workload = changes.pop("workload", here.workload)
    return setting(
        here.folder,
        base=base,
        workload=workload,
        on_disk=True,
        **{k: v for k, v in changes.items() if k != "base"},
    )


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        (
            {
                "workload": tiny_workload(),
                "ceiling_bytes": 2**30,
            },
            ["--memory-ceiling is 1.00 GiB, the study's is 0.16 GiB; use the options"],
        ),
        (
            {"space": small_space(ONE_KEY)},
            ["the search space differs in .*zero_optimization.stage"],
        ),
        (
            {"workload": tiny_workload(seq_len=64, precision="fp32")},
            ["--seq-len is 64, the study's is 128", "--precision is fp32, the study's is bf16"],
        ),
        (
            {"workload": tiny_workload(gpus=1, global_batch_size=8)},
            ["--gpus is 1, the study's is 2", "--global-batch-size is 8, the study's is 16"],
        ),
        (
            {"name": "emulated"},
            ["--evaluator is emulated, the study's is measured", "--gpus-per-node is 2, the"],
        ),
        (
            {"base": {"steps_per_print": 7}},
            ["--base differs in steps_per_print;"],
        ),
    ],
    ids=["ceiling", "space", "workload", "ranks", "evaluator", "base"],
)
def test_a_resume_of_another_job_names_what_differs(
    tmp_path: Path, changes: dict[str, Any], messages: Sequence[str]
) -> None:
    here = setting(tmp_path / "s", on_disk=True)
    here.search(trials=1)
    with pytest.raises(StoreError, match="--resume s: ") as raised:
        _changed(here, **changes).open(resume=True)
    assert len(raised.value.faults) == len(messages), raised.value.faults
    for fault, message in zip(raised.value.faults, messages, strict=True):
        assert re.search(message, fault), fault


def test_a_resume_with_another_model_is_one_fault(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", on_disk=True)
    here.search(trials=1)
    other = resolve_workload(
        load_model_shape("125m"),
        gpus=2,
        base={},
        seq_len=128,
        global_batch_size=16,
        device_kind="cpu",
    )
    with pytest.raises(StoreError, match="the model is 125m, the study's is tiny") as raised:
        _changed(here, workload=other).open(resume=True)
    assert len(raised.value.faults) == 1


def test_a_resume_with_another_seed_goes_on_with_the_first_one(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", on_disk=True)
    here.search(trials=1)
    here.seed = 99
    assert here.open(resume=True).setup.seed == 1
