"""Landscapes, and searches over them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import DispatchError, StoreError
from autotune.evaluate import TrialRequest
from autotune.landscape import Landscape
from autotune.outcome import Failure, Status
from autotune.replay import Replayed, as_json, open_landscape, replay
from autotune.study import StudyView
from tests.search.setting import FEW_POINTS, outcome, setting, small_space


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a searched study."""
    folder = tmp_path_factory.mktemp("studies") / "few"
    setting(folder, space=small_space(FEW_POINTS), on_disk=True).search(trials=14).close()
    return folder


@pytest.fixture(scope="module")
def landscape(study: Path) -> Landscape:
    return open_landscape(str(study))


def test_a_landscape_holds_every_outcome_that_says_something(
    study: Path, landscape: Landscape
) -> None:
    stored = setting(study, space=small_space(FEW_POINTS), on_disk=True).open(resume=True).stored
    records = stored.records()
    assert len(landscape.trials) == len(records) == 14
    view = StudyView.of(stored)
    stored.close()
    interrupted = replace(records[0], interrupted=True)
    failure = Failure(reason="as if")
    crashed = replace(
        records[1], outcome=replace(outcome(records[1]), status=Status.CRASHED, failure=failure)
    )
    rest = replace(view, records=(interrupted, crashed, *records[2:]))
    assert len(Landscape.of(rest).trials) == 12


def test_a_file_gives_the_same_landscape(landscape: Landscape, tmp_path: Path) -> None:
    landscape.write(tmp_path / "one.json.gz")
    read = open_landscape(str(tmp_path / "one.json.gz"))
    read.write(tmp_path / "two.json.gz")
    assert read.to_json() == landscape.to_json()
    assert (tmp_path / "one.json.gz").read_bytes() == (tmp_path / "two.json.gz").read_bytes()


def test_the_replay_evaluator_answers_with_what_was_recorded(landscape: Landscape) -> None:
    for candidate, recorded in landscape.trials:
        answer = landscape.evaluator.evaluate(_request(candidate.ds_config), lambda *_: None)
        assert answer == recorded


def test_it_refuses_what_was_not(landscape: Landscape) -> None:
    with pytest.raises(DispatchError, match="trial-0000: no such run was recorded"):
        landscape.evaluator.evaluate(_request({"zero_optimization": {"stage": 3}}), lambda *_: None)


def test_searches_try_recorded_points_only_and_find_the_best(landscape: Landscape) -> None:
    (found,) = replay(landscape, samplers=["tpe"], num_seeds=3, num_trials=40)
    # Every point once, whatever the budget: 14 recorded trials are 14 runs.
    assert [len(curve) for curve in found.curves] == [14] * 3
    assert all(curve[-1] == 1.0 for curve in found.curves)
    assert all(list(curve) == sorted(curve) for curve in found.curves)


def test_a_replay_is_the_same_every_time(landscape: Landscape) -> None:
    once = replay(landscape, samplers=["tpe", "random"], num_seeds=2, num_trials=9)
    assert once == replay(landscape, samplers=["tpe", "random"], num_seeds=2, num_trials=9)
    told = json.loads(as_json(landscape, once))
    assert told["landscape"]["num_points"] == 14
    assert [r["sampler"] for r in told["replays"]] == ["tpe", "random"]


def test_launches_to_a_good_config() -> None:
    found = Replayed(sampler="tpe", curves=((0.5, 0.96, 1.0), (0.1, 0.2, 0.3)))
    assert found.launches_to_good == (2, None)
    assert found.best_after(2) == (0.58, 0.2, 0.96)
    assert found.best_after(99)[2] == 1.0


def test_what_is_no_landscape_is_said(landscape: Landscape, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere: neither a landscape file nor a study"):
        open_landscape("nowhere")
    (tmp_path / "text").write_text("text")
    with pytest.raises(StoreError, match=r"text: is no landscape \(Not a gzipped file"):
        open_landscape(str(tmp_path / "text"))
    with pytest.raises(StoreError, match=r"--sampler annealing: must be one of tpe, random"):
        replay(landscape, samplers=["annealing"], num_seeds=1, num_trials=1)
    empty = replace(landscape, trials=())
    with pytest.raises(StoreError, match="no complete trial"):
        replay(empty, samplers=["tpe"], num_seeds=1, num_trials=1)


def _request(ds_config: object) -> TrialRequest:
    assert isinstance(ds_config, dict)
    settings = {"activation_checkpointing": False, "attn_implementation": "sdpa"}
    return TrialRequest(number=0, label="trial-0000", ds_config=ds_config, model_settings=settings)
