"""The steps of the gate, with and without the facts of the job."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from autotune.errors import AutotuneError, ConfigError, GateError
from autotune.gating import GateResult, gate
from autotune.gating.deepspeed_parser import ParserAnswer, as_deepspeed_sees_it, deepspeed_refuses
from autotune.gating.rules import all_rules, rule_or_raise
from autotune.job.job import Job
from autotune.job.launcher import Launcher
from autotune.job.resolve import launcher_of
from autotune.job.site import device_of
from autotune.lint.finding import Severity, Verdict
from autotune.lint.subject import Launch, Subject
from tests.asked import gate_request
from tests.gating.records import write

CLEAN = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}


def _gated(config: Any, **options: Any) -> GateResult:
    text = config if isinstance(config, bytes) else json.dumps(config).encode()
    return gate(gate_request(ds_config="ds_config.json", **options), text=text)


def test_a_clean_config_alone_is_ok() -> None:
    result = _gated(CLEAN)
    assert result.verdict is Verdict.OK
    assert result.answer.to_json() is None
    assert result.answer.reason
    assert result.deepspeed.how == "table of fields"
    assert result.deepspeed.version is not None
    assert result.passes(strict=False)


def test_memory_that_is_not_judged_fails_only_with_strict() -> None:
    not_judged = _gated(CLEAN)
    assert (not_judged.passes(strict=False), not_judged.passes(strict=True)) == (True, False)
    options: dict[str, Any] = {"model": "125m", "gpus": 1, "gpu_type": "a100-40gb"}
    assert _gated(CLEAN, seq_len=128, **options).passes(strict=True)
    assumed = _gated(CLEAN, **options)
    assert assumed.verdict is Verdict.WARNING
    assert assumed.answer.assumed == (
        "sequence length 2048 (preset; --seq-len not given)",
        "optimizer AdamW (preset; --client-optimizer not given)",
    )
    assert (assumed.passes(strict=False), assumed.passes(strict=True)) == (True, False)


def test_memory_has_the_keys_that_plan_prints() -> None:
    options: dict[str, Any] = {"model": "125m", "gpus": 1, "gpu_type": "a100-40gb"}
    memory = _gated(CLEAN, host_memory="64", **options).answer.to_json()
    assert memory is not None
    device = memory["device"]
    assert {"items", "peak_allocated_bytes", "peak_reserved_bytes", "fits"} <= device.keys()
    assert memory["host"]["ceiling_bytes"] == 64 * 2**30


def test_findings_are_worst_first() -> None:
    config = CLEAN | {"zero_optimization": {"stage": 1, "cpu_offload": False, "stge": 1}}
    severities = [finding.severity for finding in _gated(config).findings]
    assert severities == sorted(severities, key=list(Severity).index)
    assert severities[0] is Severity.ERROR


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff\xfe", b"\x00", b"7", b"[]", b"{}", b'{"a": 1, "a": 2}', b"\x80"]
)
def test_a_fault_inside_the_config_is_a_finding(text: bytes) -> None:
    result = _gated(text)
    assert isinstance(json.dumps(result.to_json(), allow_nan=False), str)
    if text != b"{}":
        assert result.verdict is Verdict.ERROR


def test_findings_that_quote_a_config_are_printable() -> None:
    result = _gated(b'{"zero_optimization": {"\\ud800\\u001b[31m": 1}}')
    for finding in result.findings:
        printed = f"{finding.field}{finding.message}{finding.suggestion}"
        assert printed.isprintable(), printed


def test_strict_fails_on_warnings() -> None:
    warning = _gated({**CLEAN, "zero_optimization": {"stage": 3, "cpu_offload": True}})
    assert warning.verdict is Verdict.WARNING
    assert warning.passes(strict=False)
    assert not warning.passes(strict=True)


def test_an_ignored_rule_does_not_count() -> None:
    config = CLEAN | {"zero_optimization": {"stage": 1, "stge": 1}}
    assert _gated(config).verdict is Verdict.ERROR
    assert _gated(config, ignore=frozenset({"unknown-key"})).verdict is Verdict.OK


def test_an_unknown_rule_is_refused_with_the_nearest() -> None:
    with pytest.raises(GateError, match="--ignore unknown-kee: no such rule; did you mean unknown"):
        _gated(CLEAN, ignore=frozenset({"unknown-kee"}))
    with pytest.raises(GateError, match="--explain zzz: no such rule; autotune gate --list-rules"):
        rule_or_raise("zzz", option="--explain")


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda rule: rule.id)
def test_every_page_names_the_fault_then_the_reason_then_a_suggestion(rule: Any) -> None:
    first, _, rest = rule.page.partition("\n")
    assert first.endswith(".")
    assert len(first) <= 100
    reason, _, suggestion = rest.partition("\n\nSuggestion: ")
    assert reason.strip()
    assert suggestion.strip()
    assert rule.id == rule.id.lower().replace("_", "-")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": 0}, "--gpus 0: must be at least 1"),
        ({"params": float("nan")}, "--params nan: must be at least 1"),
        ({"model": "7b", "params": 7e9}, "--params: --model names the model already"),
        ({"gpus": 8, "nodes": 3}, "--nodes 3: does not divide 8 GPUs"),
        ({"measure": True}, "--measure: needs a record"),
        ({"max_age_h": 1.0}, "--max-age: needs a record"),
        ({"max_regression": 0.1}, "--max-regression: needs a record"),
        ({"baseline": Path("r.json"), "max_regression": 1.5}, "--max-regression 150%: must be"),
        ({"gpu_type": "h900"}, "--gpu-type h900: unknown device; .*, or give its --gpu-memory"),
        ({"gpu_memory": "much"}, "--gpu-memory much: not a|--gpu-memory 'much': not a size"),
        ({"host_memory": "0"}, "--host-memory 0GiB: must be more than zero"),
        ({"model": "8b"}, "--model 8b: neither a preset"),
        ({"params": 10.0, "gpu_memory": "80"}, "parameters=10: too few"),
        ({"hf_args": Path("no.json")}, "--hf-args no.json: no such file"),
        ({"baseline": Path("no.json")}, "--baseline no.json: no such file"),
        ({"accepted": Path("no.json")}, "--accepted no.json: no such file"),
    ],
    ids=str,
)
def test_a_wrong_call_raises_instead_of_a_finding(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AutotuneError, match=message) as raised:
        _gated(CLEAN, **options)
    assert raised.value.exit_code == 2


def test_a_missing_config_raises_instead_of_a_finding(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        gate(gate_request(ds_config=str(tmp_path / "no.json")))
    with pytest.raises(ConfigError, match="not readable: Is a directory"):
        gate(gate_request(ds_config=str(tmp_path)))


def test_hf_args_make_hugging_face_the_launcher(tmp_path: Path) -> None:
    arguments = write(tmp_path / "args.json", {"per_device_train_batch_size": 2})
    assert launcher_of(Job(hf_args=arguments)) is Launcher.HF
    assert launcher_of(Job()) is Launcher.DEEPSPEED
    both = Job(hf_args=arguments, launcher=Launcher.DEEPSPEED)
    assert launcher_of(both) is Launcher.DEEPSPEED


@pytest.mark.parametrize(
    ("gpu_type", "gpu_memory", "gib"),
    [
        ("Gaudi 2", "96", 96.0),  # not in the catalogue: its memory is enough to judge by
        ("A100", None, 79.15),
        ("A100", "40", 39.39),  # of the two that are sold, the one of that size
        ("V100", "32", 31.74),
        ("a100-80gb", "80GB", 80e9 / 2**30),  # less than any: as the driver reports it
        (None, "24", 24.0),
        (None, "79.2GiB", 79.2),
        ("a100-80gb", "10", 10.0),
        ("RTX 4090", "48", 48.0),  # rebuilt with more; no other RTX of that size
        ("GeForce RTX 3060", "12", 12.0),  # not in the catalogue, and its memory is given
    ],
)
def test_a_device_is_found_by_type_and_size(
    gpu_type: str | None, gpu_memory: str | None, gib: float
) -> None:
    device = device_of(Job(gpu_type=gpu_type, gpu_memory=gpu_memory))
    assert device is not None
    assert device.memory_bytes / 2**30 == pytest.approx(gib, abs=0.01)


def test_a_finding_in_an_accelerate_yaml_has_its_key_and_line() -> None:
    text = (
        b"distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n"
        b"  zero_stage: 7\n  gradient_accumulation_steps: 1\nmixed_precision: bf16\n"
    )
    result = gate(gate_request(ds_config="acc.yaml"), text=text)
    (error,) = [f for f in result.findings if f.severity is Severity.ERROR]
    assert error.field == "deepspeed_config.zero_stage"
    assert error.line == 4


def test_the_parser_gets_a_config_without_auto_under_hugging_face() -> None:
    config = {"train_batch_size": "auto", "optimizer": {"params": {"lr": "auto"}}, "fp16": {}}
    subject = Subject(config=config, launch=Launch(launcher=Launcher.HF, gpus=8))
    assert as_deepspeed_sees_it(subject) == (
        {"fp16": {}, "train_micro_batch_size_per_gpu": 1},
        8,
    )


def test_without_ranks_the_parser_gets_no_batch_sizes() -> None:
    subject = Subject(config={"train_batch_size": 7, "steps_per_print": 1})
    assert as_deepspeed_sees_it(subject) == (
        {"steps_per_print": 1, "train_micro_batch_size_per_gpu": 1},
        1,
    )


def test_a_refusal_is_reported_at_its_key() -> None:
    subject = Subject(config={"zero_optimization": {"stage": 7, "overlap_comm": True}})
    answer = ParserAnswer(
        version="0.19.8", refusal="ValidationError: stage Input should be 0, 1, 2 or 3"
    )
    (finding,) = deepspeed_refuses(subject, answer)
    assert finding.field == "zero_optimization.stage"
    assert "DeepSpeed 0.19.8 refuses" in finding.message
    assert list(deepspeed_refuses(subject, ParserAnswer(version="0.19.8", refusal=None))) == []


def test_ask_deepspeed_without_deepspeed_is_refused() -> None:
    with (
        patch("importlib.util.find_spec", return_value=None),
        pytest.raises(ConfigError, match="DeepSpeed is not installed in this environment"),
    ):
        _gated(CLEAN, ask_deepspeed=True)


def test_the_installed_deepspeed_parses_the_config_in_addition() -> None:
    config = CLEAN | {"zero_optimization": {"stage": 9}}
    result = _gated(config, ask_deepspeed=True, gpus=2)
    assert result.deepspeed.how == "DeepSpeedConfig"
    assert "deepspeed-refuses" in [finding.rule for finding in result.findings]
    assert _gated(CLEAN, ask_deepspeed=True, gpus=2).verdict is Verdict.OK
