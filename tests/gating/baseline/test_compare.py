"""A record that no longer describes the config, the job or the environment."""

from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from autotune import dotted
from autotune.errors import GateError
from autotune.gating import GateResult, gate
from autotune.gating.baseline.compare import RULE_INFOS
from autotune.job.origin import Origin
from autotune.lint.finding import Finding, Verdict
from tests.asked import gate_request
from tests.gating.records import write

RULES = {rule.id for rule in RULE_INFOS}


def _gated(
    folder: Path, record: dict[str, Any], config: dict[str, Any] | None = None, **options: Any
) -> GateResult:
    chosen = write(folder / "ds_config.json", record["ds_config"] if config is None else config)
    written = write(folder / "record.json", record)
    with patch("autotune.gating.baseline.compare.version", _as_recorded):
        return gate(gate_request(ds_config=str(chosen), baseline=written, **options))


def _as_recorded(package: str) -> str:
    return {"torch": "2.13.0", "deepspeed": "0.19.8", "transformers": "5.24.0"}[package]


def _of_record(result: GateResult) -> list[Finding]:
    return [finding for finding in result.findings if finding.rule in RULES]


def test_the_recorded_config_in_its_own_environment_passes(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    result = _gated(
        tmp_path, record, model="tiny", gpus=2, seq_len=128, max_age_h=24.0, gpu_type=None
    )
    assert _of_record(result) == []
    assert result.verdict is Verdict.OK


def test_memory_is_judged_at_the_records_length_if_no_option_gives_one(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    record["workload"]["seq_len"] = 512
    record["model_settings"]["activation_checkpointing"] = True
    job: dict[str, Any] = {"model": "tiny", "gpus": 2, "gpu_memory": "80GiB"}
    known: dict[str, Any] = {"seq_len": 512, "activation_checkpointing": True}
    open_, given = (_gated(tmp_path, record, **job | options) for options in ({}, known))
    by_record, by_options = open_.answer.to_json(), given.answer.to_json()
    assert by_record is not None
    assert by_record == by_options
    assert {open_.job.facts[name].origin for name in known} == {Origin.RECORD}
    assert {given.job.facts[name].origin for name in known} == {Origin.OPTION}


@pytest.mark.parametrize(
    ("key", "value", "options", "field"),
    [
        ("environment.torch", "2.12.0", {}, "environment.torch"),
        ("environment.deepspeed", "0.18.0", {}, "environment.deepspeed"),
        ("environment.transformers", "5.0.0", {}, "environment.transformers"),
        ("workload.world_size", 4, {"gpus": 2}, "workload.world_size"),
        ("workload.seq_len", 64, {"seq_len": 128}, "workload.seq_len"),
        ("workload.model.vocab_size", 7, {"model": "tiny"}, "workload.model"),
        (
            "environment.devices",
            ["node7 cuda:0 NVIDIA H200"],
            {"gpu_type": "h100-80gb"},
            "environment.device_model",
        ),
    ],
)
def test_each_kind_of_drift_is_a_warning_that_names_both(
    tmp_path: Path,
    record: dict[str, Any],
    key: str,
    value: Any,
    options: dict[str, Any],
    field: str,
) -> None:
    result = _gated(tmp_path, dotted.updated(record, {key: value}), **options)
    (finding,) = [f for f in _of_record(result) if f.rule == "environment-drift"]
    assert finding.field == field
    assert result.verdict is Verdict.WARNING
    if key != "workload.model.vocab_size":
        recorded = value[0] if isinstance(value, list) else str(value)
        assert recorded.lower().rpartition(" ")[2] in finding.message


@pytest.mark.parametrize(
    ("device", "threads", "findings"),
    [("cpu", 4, ["environment.threads_per_rank"]), ("cpu", 8, []), ("none", 4, [])],
)
def test_cpu_threads_are_compared_if_the_optimizer_runs_on_the_cpu(
    tmp_path: Path, record: dict[str, Any], device: str, threads: int, findings: list[str]
) -> None:
    key = "ds_config.zero_optimization.offload_optimizer"
    changed = {key: {"device": device}, "environment.threads_per_rank": 8}
    result = _gated(tmp_path, dotted.updated(record, changed), cpu_threads=threads)
    drift = [f for f in _of_record(result) if f.rule == "environment-drift"]
    assert [finding.field for finding in drift] == findings
    for finding in drift:
        assert "the number of CPU threads a rank is 4, and the record" in finding.message


def test_the_same_device_by_another_name_is_not_drift(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    changed = dotted.updated(record, {"environment.devices": ["n cuda:3 NVIDIA H100 80GB HBM3"]})
    assert _of_record(_gated(tmp_path, changed, gpu_type="H100")) == []


def test_another_number_of_parameters_is_another_model(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    result = _gated(tmp_path, record, params=6.7e9)
    assert [f.field for f in _of_record(result)] == ["workload.model"]


def test_the_gpu_and_driver_of_this_machine_are_compared(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    recorded = {"environment.devices": ["n cuda:0 NVIDIA H200"], "environment.driver": "570.1"}
    changed = dotted.updated(record, recorded)
    machine = "autotune.pool.machine"
    with (
        patch(f"{machine}.cuda_device_names", lambda: ("NVIDIA H200",)),
        patch(f"{machine}.cuda_driver_version", lambda: "580.2"),
    ):
        result = _gated(tmp_path, changed)
    (finding,) = _of_record(result)
    assert finding.message == "the driver is 580.2, and the record was measured with 570.1"
    with patch(f"{machine}.cuda_device_names", lambda: ("NVIDIA L4",)):
        result = _gated(tmp_path, changed)
    (finding,) = _of_record(result)
    assert finding.field == "environment.device_model"


def test_versions_are_those_installed_here(tmp_path: Path, record: dict[str, Any]) -> None:
    record["environment"]["torch"] = "1.0"
    chosen = write(tmp_path / "ds_config.json", record["ds_config"])
    written = write(tmp_path / "record.json", record)
    result = gate(gate_request(ds_config=str(chosen), baseline=written))
    assert any(version("torch") in finding.message for finding in result.findings)


@pytest.mark.parametrize(("days", "stale"), [(29, False), (31, True)])
def test_a_record_older_than_the_limit_is_an_error(
    tmp_path: Path, record: dict[str, Any], days: int, stale: bool
) -> None:
    record["created"] = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    result = _gated(tmp_path, record, max_age_h=30 * 24.0)
    assert [f.rule for f in _of_record(result)] == ["stale-record"] * stale
    assert result.verdict is (Verdict.ERROR if stale else Verdict.OK)


def test_without_a_limit_any_age_passes(tmp_path: Path, record: dict[str, Any]) -> None:
    record["created"] = "2020-01-01T00:00:00+00:00"
    assert _of_record(_gated(tmp_path, record)) == []


def test_a_record_of_unknown_age_is_a_warning(tmp_path: Path, record: dict[str, Any]) -> None:
    del record["created"]
    result = _gated(tmp_path, record, max_age_h=1.0)
    assert [f.rule for f in _of_record(result)] == ["stale-record"]
    assert result.verdict is Verdict.WARNING


def test_a_config_that_differs_is_an_error_that_names_key_and_values(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    config = dotted.updated(
        record["ds_config"], {"zero_optimization.reduce_bucket_size": 10_000_000}
    )
    result = _gated(tmp_path, record, config)
    (finding,) = _of_record(result)
    assert finding.rule == "config-differs"
    assert finding.field == "zero_optimization.reduce_bucket_size"
    assert "10000000" in finding.message
    assert "DeepSpeed's default 500000000" in finding.message
    assert finding.line == 1
    assert result.verdict is Verdict.ERROR


def test_a_config_that_runs_alike_does_not_differ(tmp_path: Path, record: dict[str, Any]) -> None:
    alike = {
        "zero_optimization.reduce_bucket_size": 5e8,  # the default
        "zero_optimization.sub_group_size": 7,  # acts at stage 3 only
    }
    result = _gated(tmp_path, record, dotted.updated(record["ds_config"], alike))
    assert _of_record(result) == []


@pytest.mark.parametrize("planned", [True, False, None])
def test_model_settings_are_compared_if_they_are_known(
    tmp_path: Path, record: dict[str, Any], planned: bool | None
) -> None:
    record["model_settings"]["activation_checkpointing"] = False
    result = _gated(tmp_path, record, activation_checkpointing=planned)
    expected = ["model.activation_checkpointing"] if planned else []
    assert [f.field for f in _of_record(result)] == expected


def test_training_arguments_give_activation_checkpointing(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    record["model_settings"]["activation_checkpointing"] = False
    arguments = write(tmp_path / "args.json", {"gradient_checkpointing": True})
    result = _gated(tmp_path, record, hf_args=arguments)
    assert "model-settings-differ" in [f.rule for f in _of_record(result)]


def test_a_record_of_an_older_version_takes_the_config_beside_it(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    config = record.pop("ds_config")
    assert _of_record(_gated(tmp_path, record, config)) == []


def test_a_record_without_a_config_is_refused(tmp_path: Path, record: dict[str, Any]) -> None:
    chosen = write(tmp_path / "mine.json", record.pop("ds_config"))
    written = write(tmp_path / "record.json", record)
    with pytest.raises(GateError, match=r"has no ds_config, and no ds_config\.json is beside it"):
        gate(gate_request(ds_config=str(chosen), baseline=written))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable as JSON"),
        ("[]", "holds a list, not a record"),
        ("{}", "evaluator, tokens_per_s.value, workload, environment, model_settings missing"),
        (
            '{"evaluator": "measured", "tokens_per_s": {"value": 1}, "workload": {"a": 1}, '
            '"environment": {"b": 1}, "model_settings": {"c": 1}, "ds_config": {"d": 1}}',
            "not a record of autotune",
        ),
    ],
)
def test_a_file_that_is_not_a_record_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text, encoding="utf-8")
    config = write(tmp_path / "ds_config.json", {"train_batch_size": 8})
    with pytest.raises(GateError, match=message):
        gate(gate_request(ds_config=str(config), baseline=path))
