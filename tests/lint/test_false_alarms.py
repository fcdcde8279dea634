"""The benchmark of false alarms counts correctly."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.false_alarms import judge_all, report, within_limits

SOUND: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}
WARNED = {**SOUND, "min_lr": 1e-6}
REFUSED = {**SOUND, "zero_optimization": {"stage": 5}}


def folder_of(path: Path, rows: list[tuple[dict[str, Any], str, str]]) -> Path:
    """Write a folder of configs with its index: config, verdict, other acceptable verdicts."""
    names = ["id", "launcher", "world_size_valid", "our_verdict", "also_acceptable"]
    with (path / "index.csv").open("w", newline="") as file:
        index = csv.writer(file)
        index.writerow(names)
        for place, (config, verdict, also) in enumerate(rows):
            (path / f"x{place}.json").write_text(json.dumps(config))
            index.writerow([f"x{place}", "deepspeed", "any", f"{verdict}: why", also])
    return path


@pytest.mark.parametrize(
    ("config", "verdict", "also", "count"),
    [
        (REFUSED, "ok", "", "false errors: 1 of 1"),
        (WARNED, "ok", "", "false warnings: 1 of 1 (100.0%)"),
        (SOUND, "error", "", "missed errors: 1"),
        (WARNED, "error", "", "missed errors: 1"),
    ],
)
def test_a_wrong_verdict_is_counted(
    config: dict[str, Any], verdict: str, also: str, count: str, tmp_path: Path
) -> None:
    entries = judge_all(folder_of(tmp_path, [(config, verdict, also)]))
    assert count in report(entries)
    assert f"x0  expected {verdict}" in report(entries)
    assert not within_limits(entries)


def test_what_a_careful_reader_would_accept_is_right(tmp_path: Path) -> None:
    rows = [
        (SOUND, "ok", ""),
        (WARNED, "warning", ""),
        (WARNED, "ok", "warning"),
        (WARNED, "error", "warning"),
        (REFUSED, "error", ""),
    ]
    entries = judge_all(folder_of(tmp_path, rows))
    assert within_limits(entries)
    assert "false errors: 0 of 2" in report(entries)


def test_few_warnings_among_many_sound_configs_are_within_limits(tmp_path: Path) -> None:
    rows = [(SOUND, "ok", "")] * 39 + [(WARNED, "ok", "")]
    assert within_limits(judge_all(folder_of(tmp_path, rows)))
    assert not within_limits(judge_all(folder_of(tmp_path, rows[20:])))


def test_an_error_where_a_warning_was_right_is_reported(tmp_path: Path) -> None:
    entries = judge_all(folder_of(tmp_path, [(REFUSED, "warning", "")]))
    assert "errors where a warning was right: 1" in report(entries)
