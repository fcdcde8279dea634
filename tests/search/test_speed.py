"""The speed model against the trials of a study."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from autotune.ceiling import GIB
from autotune.hardware import find_device
from autotune.outcome import Status
from autotune.report.summary import summarize
from autotune.search.speed import SpeedModel, SpeedReport
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
    said = record["predictions"]["speed"]
    assert said["evaluator"] == "modelled"
    for role, tokens_per_s in (
        ("winner", record["tokens_per_s"]["value"]),
        ("baseline", record["baseline"]["tokens_per_s"]["value"]),
    ):
        told = said[role]
        predicted = told["predicted_tokens_per_s"]
        assert predicted["low"] < predicted["value"] < predicted["high"]
        assert told["measured_tokens_per_s"] == pytest.approx(tokens_per_s)
        assert told["error"] == pytest.approx(predicted["value"] / tokens_per_s - 1)


def test_a_study_without_it_says_nothing(simulation: Simulation, tmp_path: Path) -> None:
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
        num_compared=0, mean_error=None, worst_error=None, predicted={}
    )


def test_a_report_survives_json() -> None:
    report = SpeedReport(
        num_compared=1, mean_error=0.1, worst_error=-0.1, predicted={"3": (1.0, 0.5, 2.0)}
    )
    assert SpeedReport.from_json(report.to_json()) == report
