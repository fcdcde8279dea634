"""The Optuna storage of a study, read with Optuna."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from autotune.errors import StoreError
from autotune.evaluate import TrialRequest
from autotune.study.confirmation import best_of
from autotune.study.outcome import Outcome, Phase, Status
from autotune.study.store import StoredStudy, _attributes
from tests.search.setting import CEILING_BYTES, Setting, setting

FAILURES = {
    6: Status.CRASHED,
    7: Status.TIMED_OUT,
    8: Status.INVALID,
    9: Status.OOM_HOST,
    10: Status.OOM_DEVICE,
    11: Status.DIVERGED,
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """A study with a trial of every status that a search can end in."""
    here = setting(tmp_path_factory.mktemp("studies") / "mixed", on_disk=True)

    def override(request: TrialRequest) -> Outcome | None:
        status = FAILURES.get(request.number)
        if status is None:
            return None
        return here.evaluator.failed(status, f"as if {status}", phase=Phase.STEADY)

    here.evaluator.override = override
    here.search(trials=24)
    return here


@pytest.fixture(scope="module")
def study(here: Setting) -> optuna.Study:
    """The same, as any Optuna tool sees it."""
    return optuna.load_study(study_name="mixed", storage=here.url)


@pytest.fixture(scope="module")
def stored(here: Setting) -> StoredStudy:
    return StoredStudy("mixed", here.url, create=False)


def _with_status(study: optuna.Study, *statuses: Status) -> list[FrozenTrial]:
    found = [t for t in study.trials if t.user_attrs["status"] in statuses]
    assert {t.user_attrs["status"] for t in found} == set(statuses)
    return found


def test_a_complete_trial_has_its_tokens_per_s_and_a_constraint_that_holds(
    study: optuna.Study, stored: StoredStudy
) -> None:
    for trial in _with_status(study, Status.COMPLETE):
        outcome = stored.records()[trial.number].outcome
        assert outcome is not None
        assert trial.state is TrialState.COMPLETE
        assert trial.value == outcome.measured.tokens_per_s.mean
        assert trial.constraints["memory"] <= 0
        assert trial.system_attrs["constraints"] == [trial.constraints["memory"]]
        assert trial.constraints["memory"] == pytest.approx(
            outcome.measured.peak_bytes / CEILING_BYTES - 1
        )


def test_a_trial_that_does_not_fit_is_pruned_with_its_excess(study: optuna.Study) -> None:
    for trial in _with_status(study, Status.OVER_CEILING, Status.OOM_DEVICE, Status.OOM_HOST):
        assert trial.state is TrialState.PRUNED
        assert trial.value is None
        assert trial.constraints["memory"] > 0
        # What optuna-dashboard reads.
        assert trial.system_attrs["constraints"] == [trial.constraints["memory"]]
        assert trial.user_attrs["reason"]


def test_a_slow_trial_is_pruned_with_its_speed_at_every_step(study: optuna.Study) -> None:
    for trial in _with_status(study, Status.SLOW):
        assert trial.state is TrialState.PRUNED
        assert trial.constraints["memory"] <= 0
        assert len(trial.intermediate_values) == 6
        assert all(tokens_per_s > 0 for tokens_per_s in trial.intermediate_values.values())


def test_a_trial_of_one_step_has_a_speed_without_a_range(stored: StoredStudy) -> None:
    outcome = next(r.outcome for r in stored.records() if r.outcome and r.outcome.measurement)
    ranks = tuple(
        replace(rank, inner_s=rank.inner_s[:1], boundary_s=rank.boundary_s[:1])
        for rank in outcome.measured.ranks
    )
    short = replace(outcome, measurement=replace(outcome.measured, ranks=ranks))
    [speed, _] = _attributes(short)["summary"].split(",")
    assert speed == f"about {short.tokens_per_s.mean:.0f} tokens/s"
    [speed, _] = _attributes(outcome)["summary"].split(",")
    assert " to " in speed


def test_a_config_that_must_not_be_used_is_pruned_as_not_valid(study: optuna.Study) -> None:
    for trial in _with_status(study, Status.INVALID, Status.DIVERGED):
        assert trial.state is TrialState.PRUNED
        assert trial.constraints["valid"] == 1.0
        assert "memory" not in trial.constraints
        assert trial.system_attrs["constraints"] == [1.0]


def test_a_crashed_trial_teaches_the_sampler_nothing(study: optuna.Study) -> None:
    for trial in _with_status(study, Status.CRASHED, Status.TIMED_OUT):
        assert trial.state is TrialState.FAIL
        assert not trial.constraints


def test_optunas_best_trial_is_ours(study: optuna.Study, stored: StoredStudy) -> None:
    best = best_of(stored.records())
    assert best is not None
    assert study.best_trial.number == best.number
    assert study.direction is optuna.study.StudyDirection.MAXIMIZE


def test_parameters_are_named_by_their_path_in_the_ds_config(
    study: optuna.Study, stored: StoredStudy
) -> None:
    for trial, record in zip(study.trials, stored.records(), strict=True):
        assert trial.params == record.candidate.values
    names = {name for trial in study.trials for name in trial.params}
    assert "zero_optimization.stage" in names
    assert "model.activation_checkpointing" in names


def test_every_trial_carries_status_evaluator_and_its_whole_outcome(study: optuna.Study) -> None:
    for trial in study.trials:
        attributes = trial.user_attrs
        assert attributes["evaluator"] == "measured"
        assert Outcome.from_json(attributes["outcome"]).status == attributes["status"]
        short = {k: v for k, v in attributes.items() if k not in ("outcome", "candidate")}
        # optuna-dashboard cuts structured attributes; plain ones are read whole.
        assert all(isinstance(v, str | int | float | None) for v in short.values())


def test_a_storage_that_is_read_again_gives_the_same_records(
    here: Setting, stored: StoredStudy
) -> None:
    again = StoredStudy("mixed", here.url, create=False)
    assert again.records() == stored.records()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", r"--storage nonsense: cannot be opened"),
        (
            "sqlite:////no/such/folder/study.db",
            r"cannot be opened: there is no folder /no/such/folder",
        ),
        (
            "postgresql+psycopg2://me:secret@localhost/x",
            r"postgresql\+psycopg2://me:\*\*\*@localhost/x: its driver is not .*psycopg2",
        ),
        ("mysql://me:secret@localhost/x", r"its driver is not installed \(.*MySQLdb"),
    ],
)
def test_a_storage_that_cannot_be_opened_is_named_without_its_password(
    url: str, message: str
) -> None:
    with pytest.raises(StoreError, match=message) as raised:
        StoredStudy("s", url, create=True)
    assert "secret" not in str(raised.value)


def test_a_study_that_exists_is_not_made_again(here: Setting) -> None:
    with pytest.raises(
        StoreError, match=r"--study mixed: exists in sqlite.*continue with --resume"
    ):
        StoredStudy("mixed", here.url, create=True)


def test_a_study_that_does_not_exist_is_not_opened(here: Setting) -> None:
    there = r"it contains mixed: choose one of these \(a study keeps its name"
    with pytest.raises(StoreError, match=f"--study other: no such study in sqlite.*; {there}"):
        StoredStudy("other", here.url, create=False)


def test_the_summary_names_the_evaluator_of_the_speed(stored: StoredStudy) -> None:
    outcome = next(r.outcome for r in stored.records() if r.outcome and r.outcome.measurement)
    assert _attributes(outcome)["summary"][0].isdigit()
    emulated = replace(outcome, evaluator="emulated")
    assert _attributes(emulated)["summary"] == f"emulated {_attributes(outcome)['summary']}"


def test_a_storage_that_fails_under_way_is_one_message(tmp_path: Path) -> None:
    """Another process has it locked for longer than SQLite waits."""
    here = setting(tmp_path / "studies" / "locked", on_disk=True)
    here.search(trials=3)
    stored = StoredStudy("locked", f"{here.url}?timeout=0.1", create=False)
    file = here.folder / "study.db"
    locked = r"study locked: its storage failed: .*database is locked; .*continue with --resume"
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match=locked):
            stored.set_attribute("speed", {})
        with pytest.raises(StoreError, match=locked):
            stored.records()
        with pytest.raises(StoreError, match=locked):
            next(stored.suggestions(here.space, seed=0))
    assert len(stored.records()) == 3
