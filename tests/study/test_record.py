"""The record of a study, written and read back."""

import json
from pathlib import Path

import pytest

from autotune import dotted
from autotune.study.record import Record

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*/record.json")), ids=lambda p: p.parent.name)
def test_a_record_comes_back_as_it_was_written(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    again = Record.from_json(content, path=path).to_json()
    # What was added since is there too.
    assert dotted.flatten(again).items() >= dotted.flatten(content).items()
    assert [key for key in again if key in content] == list(content)


def test_what_an_older_version_did_not_write_is_none() -> None:
    content = json.loads((STUDIES / "llama-7b-4x-h200" / "record.json").read_text(encoding="utf-8"))
    needed = ("evaluator", "workload", "environment", "model_settings", "ds_config")
    old = {key: content[key] for key in needed} | {"tokens_per_s": {"value": 7.0}}
    record = Record.from_json({**old, "of_a_newer_version": 1}, path=Path("record.json"))
    assert [record.created, record.baseline, record.emulation, record.study] == [None] * 4
    assert record.memory.get("peak_bytes") is None
    assert record.tokens_per_s.to_json() == {"value": 7.0, "low": None, "high": None}


def test_a_time_without_a_zone_is_utc() -> None:
    content = json.loads((STUDIES / "llama-7b-4x-h200" / "record.json").read_text(encoding="utf-8"))
    record = Record.from_json({**content, "created": "2026-01-02T03:04:05"}, path=Path("r"))
    assert record.to_json()["created"] == "2026-01-02T03:04:05+00:00"
