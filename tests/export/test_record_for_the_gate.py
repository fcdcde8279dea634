"""What `autotune gate --baseline` needs of a record."""

import json
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pytest

from autotune.lint.finding import Finding, Severity
from autotune.report.summary import summarize
from autotune.search.progress import Silent
from autotune.tuning import TuneResult, run_study
from tests.asked import tune_request
from tests.search.setting import FEW_POINTS, setting, small_space


def _run(folder: Path) -> TuneResult:
    here = setting(folder, noise=0.001, space=small_space(FEW_POINTS))
    request = tune_request(model="tiny", gpus=2, trials=8, confirm_rounds=3)
    return run_study(here.open(), here.evaluator, folder, request=request, progress=Silent())


def test_a_record_holds_its_config_its_time_and_the_spread_of_its_peaks(tmp_path: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    result = _run(tmp_path / "s")
    record = result.record
    assert record is not None
    exported = json.loads((tmp_path / "s" / "ds_config.json").read_text(encoding="utf-8"))
    assert record["ds_config"] == exported
    created = datetime.fromisoformat(record["created"])
    assert before <= created <= datetime.now(UTC)
    assert created.utcoffset() is not None
    assert record["memory"]["peak_bytes_least"] <= record["memory"]["peak_bytes"]


def test_what_is_exported_is_linted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = _run(tmp_path / "s")
    assert result.record is not None
    assert result.record["lint"]["verdict"] == "ok"
    summarize(result.study, result.folder, result.record)
    assert "warning:" not in capsys.readouterr().out


def test_a_warning_is_printed_with_the_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warning = Finding(rule="x", severity=Severity.WARNING, field="a", message="a: as if")
    note = Finding(rule="y", severity=Severity.NOTE, field="b", message="b: harmless")
    with patch("autotune.search.prelaunch_lint.lint", return_value=(warning, note)):
        result = _run(tmp_path / "s")
    assert result.record is not None
    assert result.record["lint"]["verdict"] == "warning"
    assert [finding["field"] for finding in result.record["lint"]["findings"]] == ["a", "b"]
    summarize(result.study, result.folder, result.record)
    printed = capsys.readouterr().out
    assert "  warning: a: as if (x)\n" in printed
    assert "harmless" not in printed
