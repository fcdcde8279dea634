"""Timed emulation against two real cards: the pairs of tests/data/h200_two_gpus.csv.

With two H200 the pairs are measured anew on this host (four minutes), since stage 3 waits for
Python and so for the host; with one, the file's are taken (two minutes). Nobody else may use them.
With AUTOTUNE_TEST_OUTPUT set to a folder, what was found is kept there as timed_pairs.jsonl.
"""

import json
import os
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from autotune.study.outcome import Measurement, Status
from tests.benchmarks.emulated_pairs import spread, steady_s
from tests.benchmarks.real_cards import EMULATED, MEASURED, Conditions, opened
from tests.gpu.rows import lines, request_of, workload_of
from tests.predict.rows import DATA

pytestmark = [pytest.mark.gpu, pytest.mark.ray]

MEDIAN, WORST = 0.05, 0.12
PAIRS = [line for line in lines("h200_two_gpus.csv") if line["evaluator"] == "measured"]
PROBE = DATA / "h200_x2_probe.json"


def measured_here(kind: str, logs: Path) -> list[Measurement]:
    """Run every pair on this machine."""
    found: list[Measurement] = []
    with opened(2, emulate=kind == EMULATED) as pool:
        conditions = Conditions.of(pool, kind=kind, probe=PROBE, logs=logs)
        for line in PAIRS:
            workload = workload_of(line)
            trial = request_of(f"{kind}-{line['pair']}", line, workload)
            outcome = conditions.evaluator(workload).evaluate(trial, lambda *_: None)
            assert outcome.status is Status.COMPLETE, outcome.failure
            found.append(outcome.measured)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every pair, measured and emulated with the collectives of two such cards."""
    logs = tmp_path_factory.mktemp("logs")
    here = torch.cuda.device_count() > 1
    rows = [
        {
            "pair": line["pair"],
            "on_this_host": here,
            "measured_s": [float(s) for s in line["step_s"].split()],
            "timed_s": [round(s, 4) for s in timed.all_step_s],
            "timed_host_loop_ms": [round(s * 1e3, 3) for s in timed.host_loop_s],
        }
        for line, timed in zip(PAIRS, measured_here(EMULATED, logs), strict=True)
    ]
    if here:
        for row, measured in zip(rows, measured_here(MEASURED, logs), strict=True):
            row["measured_s"] = [round(s, 4) for s in measured.all_step_s]
            row["measured_host_loop_ms"] = [round(s * 1e3, 3) for s in measured.host_loop_s]
    if "AUTOTUNE_TEST_OUTPUT" in os.environ:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (Path(os.environ["AUTOTUNE_TEST_OUTPUT"]) / "timed_pairs.jsonl").write_text(text)
    return rows


def error(row: dict[str, Any]) -> float:
    return abs(steady_s(row["timed_s"]) / steady_s(row["measured_s"]) - 1)


def test_steps_take_as_long_as_between_two_cards(found: list[dict[str, Any]]) -> None:
    told = {row["pair"]: (error(row), spread(row["measured_s"])) for row in found}
    assert median(size for size, _ in told.values()) <= MEDIAN, told
    assert all(size <= max(WORST, noise) for size, noise in told.values()), told


def test_what_is_slow_between_two_cards_is_slow_here(found: list[dict[str, Any]]) -> None:
    """By at least half of the real difference."""
    by_pair = {row["pair"]: row for row in found}
    default, few_live = by_pair["2"], by_pair["10"]
    really = steady_s(few_live["measured_s"]) - steady_s(default["measured_s"])
    here = steady_s(few_live["timed_s"]) - steady_s(default["timed_s"])
    assert here >= really / 2, (here, really)
