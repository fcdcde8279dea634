"""What `tests/gpu/test_timed_emulation.py` found, host by host, and what the README says of it."""

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.benchmarks.emulated_pairs import spread, steady_s
from tests.gpu.test_timed_emulation import MEDIAN, WORST, error
from tests.predict.rows import DATA

Row = dict[str, Any]
README = Path(__file__).parents[2] / "README.md"
BUSY = {"0", "3", "7"}
"""Pairs whose steps wait for the device only."""
DEFAULT, FEW_LIVE = 16, 19
"""The same two configs of 7B in `emulated_pairs.PAIRS`."""


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Row]]:
    """Return the pairs by host."""
    hosts: dict[str, dict[str, Row]] = {}
    for line in (DATA / "h200_timed_pairs.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        hosts.setdefault(row["host"], {})[row["pair"]] = row
    return hosts


def _signed(row: Row) -> float:
    return steady_s(row["timed_s"]) / steady_s(row["measured_s"]) - 1


def _beyond(rows: dict[str, Row]) -> set[str]:
    return {
        pair for pair, row in rows.items() if error(row) > max(WORST, spread(row["measured_s"]))
    }


def test_steps_that_keep_the_device_busy_take_as_long_on_every_host(
    found: dict[str, dict[str, Row]],
) -> None:
    for rows in found.values():
        assert len(rows) == 8
        assert all(error(rows[pair]) < 0.04 for pair in BUSY)


def test_the_others_depend_on_the_host(found: dict[str, dict[str, Row]]) -> None:
    medians = {host: median(map(error, rows.values())) for host, rows in found.items()}
    assert medians["fifth"] <= MEDIAN < medians["fourth"] < 0.08
    assert {host: _beyond(rows) for host, rows in found.items()} == {
        "fourth": {"4", "10"},
        "fifth": {"10"},
    }


def test_on_one_host_a_processor_has_two_speeds(found: dict[str, dict[str, Row]]) -> None:
    """Between two steps the same loop takes 0.7 or 1.3 ms."""
    loops = [ms for row in found["fifth"].values() for ms in row["timed_host_loop_ms"]]
    fast = [ms for ms in loops if ms < 1.0]
    slow = [ms for ms in loops if ms >= 1.2]
    assert min(len(fast), len(slow)) > len(loops) / 3
    assert 1.5 < median(slow) / median(fast) < 1.9


def test_few_live_parameters_are_not_as_slow_as_they_were_between_two_cards(
    found: dict[str, dict[str, Row]],
) -> None:
    """What the GPU test asks for, half of the real difference, is not there."""
    for rows in found.values():
        default, few_live = rows["2"], rows["10"]
        really = steady_s(few_live["measured_s"]) - steady_s(default["measured_s"])
        here = steady_s(few_live["timed_s"]) - steady_s(default["timed_s"])
        assert here < 0.1 * really


def test_real_cards_of_other_hosts_do_not_agree_about_few_live_parameters() -> None:
    costs = []
    for host in ("x2", "x4", "x2_other_host"):
        lines = (DATA / f"h200_{host}_pairs.jsonl").read_text("utf-8").splitlines()
        steps = {
            row["pair"]: steady_s(row["step_s"])
            for row in map(json.loads, lines)
            if row["kind"] == "measured"
        }
        costs.append(round(steps[FEW_LIVE] - steps[DEFAULT], 2))
    lines = (DATA / "h200_x2_third_host_few_live.jsonl").read_text("utf-8").splitlines()
    third = {row["pair"]: steady_s(row["measured_s"]) for row in map(json.loads, lines)}
    costs.append(round(third["10"] - third["2"], 2))
    assert costs == [0.14, 0.01, -0.03, 0.29]


def test_the_readme_has_these_numbers(found: dict[str, dict[str, Row]]) -> None:
    text = README.read_text("utf-8")
    for pair, row in found["fourth"].items():
        ours = " | ".join(f"{_signed(rows[pair]):+.1%}" for rows in found.values())
        assert f"| {steady_s(row['measured_s']):.3f} s | {ours} |" in text
