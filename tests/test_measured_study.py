"""The measured study on four cards against the code of today, and what the README says of it."""

import json
from pathlib import Path
from statistics import median

import pandas as pd
import pytest

from autotune.export import write_study_files
from autotune.job.device import find_device
from autotune.predict.memory.predict import Surroundings, predict_memory
from autotune.study.candidate import TrialRecord, training_of
from autotune.study.outcome import Phase
from autotune.study.view import StudyView
from tests.benchmarks.rank_agreement import (
    Ranked,
    compare,
    in_order,
    ranked,
    read_rows,
    read_study,
    surroundings,
    taus,
)
from tests.predict.rows import DATA

STUDIES = Path(__file__).parents[1] / "studies"
FOLDER = STUDIES / "llama-7b-4x-h200"
H200 = find_device("h200")
STEPS = (Phase.FIRST_STEP, Phase.STEADY)


@pytest.fixture(scope="module")
def study() -> StudyView:
    return read_study(FOLDER)


@pytest.fixture(scope="module")
def text() -> str:
    return (STUDIES / "README.md").read_text("utf-8")


def test_its_files_can_be_rebuilt_from_its_storage(study: StudyView, tmp_path: Path) -> None:
    write_study_files(study, tmp_path)
    for name in ("ds_config.json", "record.json", "trials.csv"):
        assert (tmp_path / name).read_text("utf-8") == (FOLDER / name).read_text("utf-8"), name


def test_it_has_thirty_trials(study: StudyView) -> None:
    table = pd.read_csv(FOLDER / "trials.csv")
    assert set(table[table["status"] == "interrupted"]["trial"]) == {19, 26}
    counts = dict(study.counts)
    assert counts.pop("interrupted") == 2
    assert counts == {"complete": 15, "over_ceiling": 5, "slow": 10}


def _peaks(record: TrialRecord) -> list[int]:
    """Return the most that each rank had allocated in its steps."""
    assert record.outcome is not None
    return [
        max(memory.allocated_bytes or 0 for memory in measured.memory if memory.phase in STEPS)
        for measured in record.outcome.measured.ranks
    ]


def _error(record: TrialRecord, study: StudyView, *, rank: int | None) -> float:
    """Return the error of a rank's predicted peak; None asks for the rank that holds the most."""
    peaks = _peaks(record)
    estimate = predict_memory(
        training_of(record.candidate, study.setup.workload), Surroundings(device=H200, rank=rank)
    )
    peak = peaks[rank] if rank is not None else max(peaks)
    return abs(estimate.device.peak_allocated_bytes / peak - 1)


@pytest.mark.parametrize("rank", [0, 1, 2, 3, None])
def test_the_memory_of_every_rank_is_predicted(study: StudyView, rank: int | None) -> None:
    errors = [_error(record, study, rank=rank) for record in ranked(study)]
    assert len(errors) == 25
    assert max(errors) < 6e-4


def test_the_last_rank_holds_more_than_the_first_at_stage_2(study: StudyView) -> None:
    """Measured: what emulation has to play, and prediction to look at."""
    first, *_, last = _peaks(study.records[9])
    assert last > 1.05 * first


def test_the_readme_has_the_record_s_numbers(text: str) -> None:
    record = json.loads((FOLDER / "record.json").read_text("utf-8"))
    baseline = record["baseline"]
    assert record["evaluator"] == "measured"
    for told in (record["tokens_per_s"], baseline["tokens_per_s"]):
        assert f"{told['value']:,.0f} | {told['low']:,.0f} to {told['high']:,.0f}" in text
    interval = f"{baseline['ratio_low']:.3f} to {baseline['ratio_high']:.3f}"
    assert f"| {baseline['ratio']:.3f} | {interval} |" in text


def test_a_plain_script_gets_what_the_record_says(text: str) -> None:
    lines = (FOLDER / "plain_script.jsonl").read_text("utf-8").splitlines()
    export, *others = (json.loads(line) for line in lines)
    speed, low, high = export["told_tokens_per_s"]
    assert low <= export["plain_tokens_per_s"] <= high
    assert f"{export['plain_tokens_per_s'] / speed - 1:+.1%}".replace("%", " %") in text
    for plain in (export, *others):
        assert f"| {plain['plain_tokens_per_s']:,.0f} |" in text
        # The script's peak is the allocator's, without the driver's context and NCCL.
        assert 0.95 < plain["plain_peak_bytes"] / plain["told_peak_bytes"] < 1.0


def test_trials_took_the_time_that_the_readme_says(study: StudyView, text: str) -> None:
    durations = [r.outcome.duration_s for r in study.records if r.outcome and not r.interrupted]
    assert f"{median(durations):.0f} s at the median" in text
    assert f"{max(durations):.0f} s where the optimizer is offloaded" in text


def _compared(study: StudyView, file: str) -> list[Ranked]:
    around = surroundings(study, DATA / "h200_x4_probe.json")
    found = compare(study, read_rows(DATA / file), around)
    assert len(found) == 25
    return found


def test_emulation_on_the_same_machine_orders_configs_as_four_cards_do(study: StudyView) -> None:
    """With the stand-in of that day, and rank 0 played."""
    found = _compared(study, "h200_x4_older_ranked.jsonl")
    assert sum(one.emulated is not None for one in found) == 14
    assert taus(found)["emulated"] >= 0.9


def test_emulation_and_model_order_configs_as_four_cards_do(study: StudyView, text: str) -> None:
    """Emulated on two other machines, whose processors were slow at times."""
    found = _compared(study, "h200_x4_ranked.jsonl")
    assert all(one.emulated is not None for one in found)
    tau = taus(found)
    assert tau["emulated"] >= 0.85
    assert tau["modelled"] >= 0.8
    assert f"measured order is {tau['emulated']:.2f}" in text
    assert f"saw none of them, has {tau['modelled']:.2f}" in text
    order = in_order(found, apart=0.05)
    assert order.emulated >= 0.98 * order.pairs
    assert order.modelled >= 0.98 * order.pairs
    told = f"of the {order.pairs} pairs of configs that lie more than 5 % apart, {order.emulated}"
    assert told in " ".join(text.split())


def test_emulated_speeds_are_those_of_four_cards_where_the_device_is_busy(
    study: StudyView, text: str
) -> None:
    errors = [
        abs(one.emulated / one.measured - 1)
        for one in _compared(study, "h200_x4_ranked.jsonl")
        if one.emulated is not None and _keeps_the_device_busy(one.record)
    ]
    assert len(errors) == 16
    assert median(errors) < 0.01
    assert sum(error < 0.025 for error in errors) == 15
    assert f"off by {median(errors):.1%} at the median".replace("%", " %") in text


def _keeps_the_device_busy(record: TrialRecord) -> bool:
    """Neither stage 3, whose hooks need Python, nor an optimizer on the host."""
    zero = record.candidate.ds_config["zero_optimization"]
    offload = zero.get("offload_optimizer", {}).get("device", "none")
    return bool(zero["stage"] < 3 and offload == "none")
