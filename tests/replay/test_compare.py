"""Landscapes, and searches over them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import DispatchError, StoreError
from autotune.evaluate import TrialRequest
from autotune.replay.compare import SamplerRuns, as_json, open_landscape, replay
from autotune.replay.landscape import Landscape
from autotune.report.sampler_comparison import print_replays
from autotune.study.outcome import Failure, Status
from autotune.study.view import StudyView
from tests.cli.calls import autotune_here
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


def test_a_landscape_has_every_outcome_that_depends_on_the_config(
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
    with pytest.raises(DispatchError, match="trial-0000: not a recorded run"):
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
    printed = json.loads(as_json(landscape, once))
    assert printed["landscape"]["num_points"] == 14
    assert [r["sampler"] for r in printed["replays"]] == ["tpe", "random"]


def test_launches_to_a_good_config() -> None:
    found = SamplerRuns(sampler="tpe", curves=((0.5, 0.96, 1.0), (0.1, 0.2, 0.3)))
    assert found.launches_to_good == (2, None)
    assert found.best_after(2) == (0.58, 0.2, 0.96)
    assert found.best_after(99)[2] == 1.0


@pytest.mark.parametrize(
    ("curves", "middle", "printed"),
    [
        # One of three got there: most searches never do.
        (((0.5, 1.0), (0.1, 0.2), (0.1, 0.2)), None, "never; 1 of 3 seeds"),
        (((0.5, 1.0), (0.1, 0.2)), None, "never; 1 of 2 seeds"),
        (((0.5, 1.0), (1.0, 1.0), (0.1, 0.2)), 2, "2; 2 of 3 seeds"),
        (((0.5, 1.0), (1.0, 1.0)), 1.5, "1.5; 2 of 2 seeds"),
        (((0.1, 0.2),), None, "never; 0 of 1 seeds"),
    ],
)
def test_a_seed_that_found_nothing_counts_as_never(
    curves: tuple[tuple[float, ...], ...],
    middle: float | None,
    printed: str,
    landscape: Landscape,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = SamplerRuns(sampler="tpe", curves=curves)
    assert found.median_launches_to_good == middle
    assert found.to_json()["median_launches_to_good"] == middle
    print_replays(landscape, [found])
    assert f" {printed} " in capsys.readouterr().out


def test_more_launches_than_points_are_reported_as_cut_short(
    landscape: Landscape, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landscape.write(tmp_path / "few.json.gz")
    options = ["--sampler", "random", "--seeds", "1", "--json"]
    for trials, note in (
        ("14", ""),
        (
            "15",
            "note: --trials 15: searches ended after 14 launches, when none of the 14 recorded "
            "points was left to try\n",
        ),
    ):
        call = autotune_here(
            "replay", str(tmp_path / "few.json.gz"), "--trials", trials, *options, capsys=capsys
        )
        assert call.code == 0
        assert call.err == note
        assert len(json.loads(call.out)["replays"][0]["curves"][0]) == 14


@pytest.mark.parametrize(
    ("place", "says"), [("no/x.gz", "No such file or directory"), ("", "Is a directory")]
)
def test_a_landscape_that_cannot_be_saved_is_reported(
    place: str, says: str, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = autotune_here("replay", str(study), "--save", str(tmp_path / place), capsys=capsys)
    assert call.faults == [
        f"--save {tmp_path / place}: cannot be written: {says}; name a file in a folder that exists"
    ]
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_a_landscape_is_refused(landscape: Landscape, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere: neither a landscape file nor a study"):
        open_landscape("nowhere")
    (tmp_path / "text").write_text("text")
    with pytest.raises(StoreError, match=r"text: not a landscape \(Not a gzipped file"):
        open_landscape(str(tmp_path / "text"))
    landscape.write(tmp_path / "damaged.gz")
    whole = (tmp_path / "damaged.gz").read_bytes()
    (tmp_path / "damaged.gz").write_bytes(whole[:40] + b"\xff" * 40 + whole[80:])
    with pytest.raises(StoreError, match=r"damaged.gz: not a landscape \(Error -3"):
        open_landscape(str(tmp_path / "damaged.gz"))
    with pytest.raises(StoreError, match=r"--sampler annealing: must be one of tpe, random"):
        replay(landscape, samplers=["annealing"], num_seeds=1, num_trials=1)
    empty = replace(landscape, trials=())
    with pytest.raises(StoreError, match="no complete trial"):
        replay(empty, samplers=["tpe"], num_seeds=1, num_trials=1)


def _request(ds_config: object) -> TrialRequest:
    assert isinstance(ds_config, dict)
    settings = {"activation_checkpointing": False, "attn_implementation": "sdpa"}
    return TrialRequest(number=0, label="trial-0000", ds_config=ds_config, model_settings=settings)
