"""Measured runs compared with the record."""

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import ConfigError
from autotune.gating import gate
from autotune.gating.baseline.measure import Measured, compare_measured, measure, noise_band
from autotune.gating.baseline.record import read_record
from autotune.lint.finding import Severity, Verdict
from autotune.lint.subject import Subject
from autotune.study.outcome import Outcome, Status
from autotune.study.record import Record
from autotune.study.step_times import Interval
from tests.asked import gate_request
from tests.cli.calls import autotune, autotune_here
from tests.gating.records import write
from tests.real_study import RealStudy
from tests.search.setting import setting


@pytest.fixture
def recorded(tmp_path: Path, record: dict[str, Any]) -> Record:
    record["tokens_per_s"] = {"value": 1000.0, "low": 980.0, "high": 1020.0}
    record["num_runs"] = 6
    record["memory"] |= {"peak_bytes": 1000, "peak_bytes_least": 950}
    return read_record(write(tmp_path / "record.json", record))


def _measured(folder: Path, tokens_per_s: float, peak_bytes: int = 1000) -> Measured:
    """Return two runs of a given speed and peak."""
    here = setting(folder, ceiling_bytes=2**40)
    here.search(trials=1)
    outcome = here.evaluator._outcome(here.evaluator.requests[0])
    as_json = outcome.to_json()
    factor = outcome.measured.tokens_per_s.mean / tokens_per_s
    for rank in as_json["measurement"]["ranks"]:
        for times in ("inner_s", "boundary_s"):
            rank[times] = [seconds * factor for seconds in rank[times]]
        for memory in rank["memory"]:
            memory["used_bytes"] = peak_bytes
    changed = Outcome.from_json(as_json)
    return Measured(evaluator="measured", outcomes=(changed, changed))


def _rules(measured: Measured, record: Record, max_regression: float | None = None) -> list[str]:
    return [f.rule for f in compare_measured(measured, record, max_regression=max_regression)]


def test_a_sigterm_interrupts_as_ctrl_c_does(
    recorded: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SignalledPool:
        """Gets the signal as soon as it is open."""

        def __init__(self, request: object) -> None:
            assert request is not None

        def __enter__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

        def __exit__(self, *_: object) -> None:
            """Nothing to close."""

    before = signal.getsignal(signal.SIGTERM)
    # An unhandled signal would end the tests.
    signal.signal(signal.SIGTERM, lambda *_: None)
    monkeypatch.setattr("autotune.pool.pool.Pool", SignalledPool)
    subject = Subject(config=dict(recorded.ds_config))
    try:
        with pytest.raises(KeyboardInterrupt):
            measure(subject, recorded)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_band_of_new_runs_is_wider_than_that_of_the_mean(recorded: Record) -> None:
    # 2 % x sqrt(1 + 6 / 2)
    assert noise_band(recorded, num_new=2) == pytest.approx(0.04)
    assert noise_band(recorded, num_new=10_000) == pytest.approx(0.02, rel=1e-3)


@pytest.mark.parametrize(
    ("tokens_per_s", "max_regression", "slower"),
    [
        (1100, None, False),
        (970, None, False),  # below the interval of the mean, within that of two runs
        (955, None, True),
        (955, 0.05, False),
        (945, 0.05, True),
        (970, 0.0, False),  # noise is never a regression
        (955, 0.01, True),
    ],
)
def test_slower_than_the_noise_band_fails(
    tmp_path: Path,
    recorded: Record,
    tokens_per_s: float,
    max_regression: float | None,
    slower: bool,
) -> None:
    measured = _measured(tmp_path / "s", tokens_per_s)
    assert measured.tokens_per_s == pytest.approx(tokens_per_s, rel=1e-6)
    assert _rules(measured, recorded, max_regression) == ["measured-slower"] * slower


def test_a_record_of_one_run_needs_an_allowance(tmp_path: Path, recorded: Record) -> None:
    one = dataclasses.replace(recorded, num_runs=1)
    measured = _measured(tmp_path / "s", 900)
    (finding,) = compare_measured(measured, one, max_regression=None)
    assert finding.severity is Severity.WARNING
    assert "--max-regression" in (finding.suggestion or "")
    assert _rules(measured, one, 0.05) == ["measured-slower"]
    assert _rules(measured, one, 0.2) == []


def test_a_record_too_noisy_to_compare_is_a_warning(tmp_path: Path, recorded: Record) -> None:
    noisy = dataclasses.replace(recorded, tokens_per_s=Interval(1000.0, 700.0, 1300.0))
    (finding,) = compare_measured(_measured(tmp_path / "s", 500), noisy, max_regression=None)
    assert finding.severity is Severity.WARNING
    assert "noisy by 60%" in finding.message
    assert _rules(_measured(tmp_path / "t", 500), noisy, 0.05) == []
    (finding,) = compare_measured(_measured(tmp_path / "u", 300), noisy, max_regression=None)
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("peak_bytes", "least", "higher"),
    [
        (1000, 950, False),
        (1050, 950, False),
        (1051, 950, True),
        (1010, 1000, False),
        (1011, 1000, True),
    ],
)
def test_a_peak_above_the_spread_of_the_records_runs_fails(
    tmp_path: Path, recorded: Record, peak_bytes: int, least: int, higher: bool
) -> None:
    measured = _measured(tmp_path / "s", 1000, peak_bytes)
    changed = dataclasses.replace(recorded, memory={**recorded.memory, "peak_bytes_least": least})
    assert _rules(measured, changed) == ["measured-fatter"] * higher


def test_a_run_that_fails_is_an_error_with_its_reason(tmp_path: Path, recorded: Record) -> None:
    here = setting(tmp_path / "s")
    failed = here.evaluator.failed(Status.OVER_CEILING, "asked for too much")
    measured = Measured(evaluator="measured", outcomes=(failed,))
    (finding,) = compare_measured(measured, recorded, max_regression=None)
    assert finding.rule == "measured-failed"
    assert "over_ceiling" in finding.message
    assert "asked for too much" in finding.message
    assert measured.to_json()["tokens_per_s"] is None


def test_a_config_with_errors_is_not_run(tmp_path: Path, record: dict[str, Any]) -> None:
    config = write(tmp_path / "ds_config.json", record["ds_config"] | {"bf16": {"enabledd": True}})
    written = write(tmp_path / "record.json", record)
    result = gate(gate_request(ds_config=str(config), baseline=written, measure=True))
    assert result.verdict is Verdict.ERROR
    assert result.measured is None
    assert "not-measured" in [finding.rule for finding in result.findings]


def test_a_modelled_record_is_refused_before_the_config_is_read(
    tmp_path: Path, record: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    config = write(tmp_path / "ds_config.json", record["ds_config"])
    # This one cannot be read as a config either, which is checked later.
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    modelled = write(tmp_path / "modelled.json", record | {"evaluator": "modelled"})
    for file in (config, tmp_path / "broken.json"):
        call = autotune_here(
            "gate", str(file), "--baseline", str(modelled), "--measure", capsys=capsys
        )
        (fault,) = call.faults
        assert fault.startswith(f"--measure: the numbers of {modelled} are modelled")


def test_runs_are_announced_if_the_config_has_no_errors(
    tmp_path: Path, record: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[str] = []

    def measure_nothing(*_: object, **__: object) -> Measured:
        assert announced == ["measuring: two runs, as the record's were run"]
        raise ConfigError("no pool here")

    monkeypatch.setattr("autotune.gating.baseline.measure.measure", measure_nothing)
    config = write(tmp_path / "ds_config.json", record["ds_config"])
    written = write(tmp_path / "record.json", record)
    asked = gate_request(ds_config=str(config), baseline=written, measure=True)
    result = gate(asked, on_start=announced.append)
    assert "nothing was measured: no pool here" in [f.message for f in result.findings]
    write(config, record["ds_config"] | {"bf16": {"enabledd": True}})
    announced.clear()
    assert gate(asked, on_start=announced.append).verdict is Verdict.ERROR
    assert announced == []


@pytest.mark.ray
@pytest.mark.timeout(800)
def test_a_real_study_is_measured_again_by_its_record(
    real_study: RealStudy, tmp_path: Path
) -> None:
    record = real_study.read_record()
    record["memory"] |= {"peak_bytes": 1, "peak_bytes_least": 1}
    baseline = write(tmp_path / "record.json", record)
    # Two runs on a busy machine may differ by much; a factor of five is not noise.
    call = autotune(
        "gate",
        str(real_study.folder / "ds_config.json"),
        *("--baseline", str(baseline), "--measure"),
        *("--max-regression", "80%", "--format", "json"),
        cwd=tmp_path,
        timeout_s=200,
    )
    assert call.code == 1, call.err
    printed = json.loads(call.out)
    assert printed["measured"]["evaluator"] == "measured"
    assert printed["measured"]["statuses"] == ["complete", "complete"]
    assert printed["measured"]["tokens_per_s"] > 0
    rules = {finding["rule"] for finding in printed["findings"]}
    assert "measured-fatter" in rules
    assert "measured-slower" not in rules
