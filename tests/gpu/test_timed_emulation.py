"""Timed emulation against two real cards: the pairs of tests/data/h200_two_gpus.csv.

One H200, nobody else on it; three minutes. With AUTOTUNE_TEST_OUTPUT set to a folder, what was
found is kept there as timed_pairs.jsonl: the lines that tests/data should hold.
"""

import json
import os
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from autotune.evaluate.emulated import EmulatedEvaluator
from autotune.hardware import find_device
from autotune.outcome import Status
from autotune.pool.pool import Pool
from autotune.predict.communication import Links
from autotune.predict.probe_file import host_slowdown, read_probe
from tests.gpu.rows import Line, lines, request_of, workload_of
from tests.predict.rows import DATA

pytestmark = [pytest.mark.gpu, pytest.mark.ray]

MEDIAN, WORST = 0.05, 0.12


def steady_s(steps: list[float]) -> float:
    """Return the mean of the later half: stage 3 traces and settles in the first ones."""
    return fmean(steps[len(steps) // 2 :])


def measured_s(line: Line) -> list[float]:
    return [float(s) for s in line["step_s"].split()]


def spread(steps: list[float]) -> float:
    """Return how far single steps of the later half lie from their mean, relative."""
    later = steps[len(steps) // 2 :]
    return max(abs(s / fmean(later) - 1) for s in later)


@pytest.fixture(scope="module")
def found(emulating_pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every measured pair, emulated with the collectives of two such cards."""
    probe = read_probe(DATA / "h200_x2_probe.json")
    folder: Path = tmp_path_factory.mktemp("study")
    rows = []
    for line in lines("h200_two_gpus.csv"):
        if line["evaluator"] != "measured":
            continue
        workload, label = workload_of(line), f"pair-{line['pair']}"
        evaluator = EmulatedEvaluator(
            pool=emulating_pool,
            workload=workload,
            ceiling_bytes=emulating_pool.device_bytes,
            gpus_per_node=2,
            seed=1,
            study_folder=folder,
            links=Links.from_probe(probe, device=find_device("h200")),
            host_slowdown=host_slowdown(probe),
            node_host_bytes=1 << 42,
        )
        outcome = evaluator.evaluate(request_of(label, line, workload), lambda *_: None)
        assert outcome.status is Status.COMPLETE, outcome.failure
        steps = [round(s, 4) for s in outcome.measured.all_step_s]
        rows.append({"pair": line["pair"], "measured_s": measured_s(line), "timed_s": steps})
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
