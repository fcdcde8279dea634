"""The speed model against the trials of a study."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from autotune.job.ceiling import GIB
from autotune.job.device import find_device
from autotune.report.summary import summarize
from autotune.search.speed_model import SpeedModel
from autotune.study.candidate import Candidate
from autotune.study.model_reports import SpeedReport
from autotune.study.outcome import Failure, Outcome, Status
from tests.search.simulated import Simulation, workload_7b

H100 = find_device("h100-80gb")


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return Simulation(workload=workload_7b(num_layers=2), ceiling_bytes=24 * GIB)


def test_every_complete_trial_corrects_it(simulation: Simulation, tmp_path: Path) -> None:
    result = simulation.run(tmp_path / "s", trials=10, predicting=True)
    study, report = result.study, result.study.speed
    assert report is not None
    complete = [r for r in study.records if r.outcome and r.outcome.status is Status.COMPLETE]
    assert report.num_compared == len(complete)
    assert report.predicted.keys() == {str(r.number) for r in complete}
    errors = []
    for record in complete:
        predicted = report.of_trial(record.number)
        assert predicted is not None
        assert record.outcome is not None
        errors.append(predicted[0] / record.outcome.tokens_per_s.mean - 1)
    assert report.mean_error == pytest.approx(fmean(map(abs, errors)))
    assert report.worst_error == pytest.approx(max(errors, key=abs))


def test_its_error_is_printed(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = simulation.run(tmp_path / "s", trials=8, predicting=True)
    summarize(result.study, result.folder, result.record)
    out = capsys.readouterr().out
    assert result.study.speed is not None
    assert f"speed model on {result.study.speed.num_compared} trials of this study: mean" in out


def test_the_record_has_what_was_predicted_beside_what_was_measured(
    simulation: Simulation, tmp_path: Path
) -> None:
    record = simulation.run(tmp_path / "s", trials=10, predicting=True).record
    assert record is not None
    reported = record["predictions"]["speed"]
    assert reported["evaluator"] == "modelled"
    for role, tokens_per_s in (
        ("winner", record["tokens_per_s"]["value"]),
        ("baseline", record["baseline"]["tokens_per_s"]["value"]),
    ):
        entry = reported[role]
        predicted = entry["predicted_tokens_per_s"]
        assert predicted["low"] < predicted["value"] < predicted["high"]
        assert entry["measured_tokens_per_s"] == pytest.approx(tokens_per_s)
        assert entry["error"] == pytest.approx(predicted["value"] / tokens_per_s - 1)


def test_a_study_without_it_reports_nothing(simulation: Simulation, tmp_path: Path) -> None:
    record = simulation.run(tmp_path / "s", trials=6).record
    assert record is not None
    assert record["predictions"]["speed"] is None


def test_what_it_cannot_read_it_does_not_predict(simulation: Simulation) -> None:
    blind = replace(H100, memory_bytes_per_s=0.0)
    speed = simulation.speed()
    unknown = SpeedModel(
        workload=simulation.workload, surroundings=replace(speed.surroundings, device=blind)
    )
    point = simulation.point(stage=2, mb=1)
    assert speed.predict(point) is not None
    assert unknown.predict(point) is None
    unknown.learn(point, simulation.outcome(point))
    assert unknown.report([]) == SpeedReport(
        num_compared=0, mean_error=None, worst_error=None, predicted={}, host_slowness=1.0
    )


def _on_slow_host(simulation: Simulation, point: Candidate) -> Outcome:
    """Return what a trial would come to where Python takes twice as long as usual."""
    truth = simulation.speed()
    truth.surroundings = replace(truth.surroundings, host_slowness=2.0)
    predicted = truth.predict(point)
    assert predicted is not None
    outcome = simulation.outcome(point)
    stretch = outcome.tokens_per_s.mean / predicted.tokens_per_s
    ranks = tuple(
        replace(
            rank,
            inner_s=tuple(s * stretch for s in rank.inner_s),
            boundary_s=tuple(s * stretch for s in rank.boundary_s),
        )
        for rank in outcome.measured.ranks
    )
    return replace(outcome, measurement=replace(outcome.measured, ranks=ranks))


def test_trials_teach_it_how_slow_the_host_is(simulation: Simulation) -> None:
    speed = simulation.speed()
    points = [simulation.point(stage=3, mb=1), simulation.point(stage=3, mb=2)]
    for point in (*points, simulation.point(stage=1, mb=4)):
        speed.learn(point, _on_slow_host(simulation, point))
    assert len(speed.calibration.trials) == 3
    assert 1.4 < speed.calibration.host_slowness <= 2
    assert speed.report([]).host_slowness == speed.calibration.host_slowness
    waits, does_not = simulation.point(stage=3, mb=1), simulation.point(stage=1, mb=8)
    before, after = speed.predict(waits), speed.corrected(waits)
    assert before is not None
    assert after is not None
    assert after.tokens_per_s < 0.8 * before.tokens_per_s
    before, after = speed.predict(does_not), speed.corrected(does_not)
    assert before is not None
    assert after is not None
    assert after.tokens_per_s > 0.9 * before.tokens_per_s


def test_a_trial_that_was_stopped_early_teaches_nothing(simulation: Simulation) -> None:
    speed, point = simulation.speed(), simulation.point(stage=3, mb=1)
    outcome = _on_slow_host(simulation, point)
    speed.learn(point, replace(outcome, status=Status.SLOW, failure=Failure(reason="as if")))
    assert not speed.calibration.trials


def test_a_slow_host_is_printed(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = simulation.run(tmp_path / "s", trials=8, predicting=True)
    assert result.study.speed is not None
    for slowness, expected in ((1.41, True), (1.0, False), (None, False)):
        study = replace(result.study, speed=replace(result.study.speed, host_slowness=slowness))
        summarize(study, result.folder, result.record)
        out = " ".join(capsys.readouterr().out.split())
        assert ("what waits for Python takes 1.4 times as long here" in out) is expected


def test_a_report_survives_json() -> None:
    report = SpeedReport(
        num_compared=1,
        mean_error=0.1,
        worst_error=-0.1,
        predicted={"3": (1.0, 0.5, 2.0)},
        host_slowness=1.2,
    )
    assert SpeedReport.from_json(report.to_json()) == report


def test_a_report_of_an_older_study_does_not_mention_the_host() -> None:
    older = SpeedReport(num_compared=0, mean_error=None, worst_error=None, predicted={}).to_json()
    del older["host_slowness"]
    assert SpeedReport.from_json(older).host_slowness is None
