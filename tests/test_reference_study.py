"""The checked-in study against the code of today: files, memory model, and what the README says."""

import csv
import json
from pathlib import Path
from statistics import fmean, median

import pytest

from autotune.export import write_study_files
from autotune.job.device import find_device
from autotune.predict.memory.predict import Surroundings, predict_memory
from autotune.predict.throughput import SpeedSurroundings
from autotune.predict.training_job import ModelSettings, read_training
from autotune.search.speed_model import SpeedModel
from autotune.study.candidate import TrialRecord
from autotune.study.outcome import Phase
from autotune.study.store import StoredStudy
from autotune.study.view import StudyView

STUDIES = Path(__file__).parents[1] / "studies"
FOLDER = STUDIES / "llama-7b-8x-emulated"
H200 = find_device("h200")


@pytest.fixture(scope="module")
def study() -> StudyView:
    stored = StoredStudy(FOLDER.name, f"sqlite:///{FOLDER / 'study.db'}", create=False)
    view = StudyView.of(stored)
    stored.close()
    return view


def test_its_files_can_be_rebuilt_from_its_storage(study: StudyView, tmp_path: Path) -> None:
    write_study_files(study, tmp_path)
    for name in ("ds_config.json", "record.json", "trials.csv"):
        assert (tmp_path / name).read_text("utf-8") == (FOLDER / name).read_text("utf-8"), name


def _stepped(study: StudyView) -> list[TrialRecord]:
    return [r for r in study.records if r.outcome is not None and r.outcome.measurement is not None]


def _allocated_bytes(record: TrialRecord) -> int:
    assert record.outcome is not None
    (rank,) = record.outcome.measured.ranks
    peaks = [m.allocated_bytes for m in rank.memory if m.phase in (Phase.FIRST_STEP, Phase.STEADY)]
    return max(peak for peak in peaks if peak is not None)


def test_the_memory_model_is_right_on_every_trial_that_took_a_step(study: StudyView) -> None:
    errors = []
    for record in _stepped(study):
        settings = record.candidate.model_settings
        training = read_training(
            record.candidate.ds_config,
            study.setup.workload,
            ModelSettings(
                activation_checkpointing=bool(settings["activation_checkpointing"]),
                attn_implementation=str(settings["attn_implementation"]),
            ),
        )
        # Its emulated trials played rank 0, at stage 2 too.
        predicted = predict_memory(
            training, Surroundings(device=H200, rank=0)
        ).device.peak_allocated_bytes
        errors.append(abs(predicted / _allocated_bytes(record) - 1))
    assert len(errors) == 33
    assert fmean(errors) < 1e-4
    assert max(errors) < 1e-3


def test_trials_took_the_time_that_the_readme_says(study: StudyView) -> None:
    outcomes = [r.outcome for r in study.records if r.outcome is not None and not r.interrupted]
    durations = [outcome.duration_s for outcome in outcomes][2:]
    own = [outcome.duration_s - outcome.ranks_s for outcome in outcomes][2:]
    text = (STUDIES / "README.md").read_text("utf-8")
    assert f"{median(durations):.1f} s at the median" in text
    assert f"up to {max(durations):.0f} s" in text
    assert f"own share was {median(own):.3f} s" in text


def test_the_readme_has_the_record_s_numbers() -> None:
    record = json.loads((FOLDER / "record.json").read_text("utf-8"))
    text = (STUDIES / "README.md").read_text("utf-8")
    for told in (record["tokens_per_s"], record["baseline"]["tokens_per_s"]):
        assert f"{told['value']:,.0f} | {told['low']:,.0f} to {told['high']:,.0f}" in text
    baseline = record["baseline"]
    interval = f"{baseline['ratio_low']:.3f} to {baseline['ratio_high']:.3f}"
    assert f"{baseline['ratio']:.3f} | {interval}" in text


def test_no_trial_left_anything_on_its_card(study: StudyView) -> None:
    """A slot launches nothing before its card is empty; a card that stays full ends the study."""
    with (FOLDER / "trials.csv").open(encoding="utf-8") as file:
        statuses = {row["status"] for row in csv.DictReader(file)}
    assert statuses <= {"complete", "slow", "over_ceiling", "interrupted", "rejected"}
    crashed = [r for r in study.records if r.outcome and r.outcome.status.value == "crashed"]
    assert all(record.interrupted for record in crashed)


def test_the_speed_model_on_its_trials(study: StudyView) -> None:
    per_node = study.setup.gpus_per_node
    assert per_node is not None
    num_threads = study.setup.environment["threads_per_rank"]
    around = SpeedSurroundings.of(H200, local_ranks=per_node).emulated(num_threads=num_threads)
    model = SpeedModel(workload=study.setup.workload, surroundings=around)
    for record in _stepped(study):
        assert record.outcome is not None
        model.learn(record.candidate, record.outcome)
    report = model.report(study.records)
    assert report.num_compared == 24
    assert report.mean_error is not None
    assert report.worst_error is not None
    assert report.mean_error <= 0.10
    assert abs(report.worst_error) <= 0.30
