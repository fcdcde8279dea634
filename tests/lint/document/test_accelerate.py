import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.job.cpu_threads import RankLauncher
from autotune.job.launcher import Launcher
from autotune.lint.document.accelerate import built_ds_config
from autotune.lint.document.accelerate_faults import SECTION_KEYS, TOP_LEVEL_KEYS
from autotune.lint.document.document import Document, read_document
from autotune.lint.finding import Finding, Severity
from autotune.lint.subject import Launch

_BASE = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "DEEPSPEED",
    "mixed_precision": "bf16",
    "num_machines": 1,
    "num_processes": 8,
}


def _config(section: dict[str, Any], **top: Any) -> dict[str, Any]:
    return _BASE | {"deepspeed_config": section} | top


def _read(config: dict[str, Any], folder: Path | None = None, **launch: Any) -> Document:
    text = yaml.safe_dump(config, sort_keys=False)
    return read_document(text, name="accelerate.yaml", launch=Launch(**launch), folder=folder)


def _reported(document: Document) -> list[tuple[str, Severity]]:
    return [(found.field, found.severity) for found in document.findings]


@pytest.mark.parametrize(
    ("section", "precision"),
    [
        ({"zero_stage": 3, "zero3_save_16bit_model": True, "gradient_clipping": 1.0}, "bf16"),
        ({"zero_stage": 2, "offload_optimizer_device": "cpu"}, "fp16"),
        ({"gradient_accumulation_steps": 4, "gradient_clipping": 0}, "no"),
        ({"zero_stage": 3, "offload_param_device": "nvme", "offload_param_nvme_path": "/x"}, "no"),
        ({"gradient_accumulation_steps": "auto", "zero3_init_flag": False}, None),
    ],
)
def test_the_ds_config_is_the_one_that_accelerate_builds(
    section: dict[str, Any],
    precision: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser  # type: ignore[import-untyped]
    from accelerate.utils import DeepSpeedPlugin  # type: ignore[import-untyped]
    from accelerate.utils.launch import prepare_deepspeed_cmd_env  # type: ignore[import-untyped]

    config = _config(section, mixed_precision=precision)
    path = tmp_path / "accelerate.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    arguments = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    arguments, _, _ = _validate_launch_command(arguments)
    arguments.deepspeed_fields_from_accelerate_config = ""
    _, environment = prepare_deepspeed_cmd_env(arguments)
    for name in set(os.environ) | set(environment):
        if name.startswith("ACCELERATE_"):
            monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        if name.startswith("ACCELERATE_"):
            monkeypatch.setenv(name, value)

    plugin = DeepSpeedPlugin()
    plugin.set_mixed_precision(environment["ACCELERATE_MIXED_PRECISION"])
    built = plugin.deepspeed_config
    built.pop("steps_per_print")
    ours = built_ds_config(config)
    for zero in (built["zero_optimization"], ours["zero_optimization"]):
        # DeepSpeed's default.
        zero.setdefault("stage3_gather_16bit_weights_on_model_save", False)
        for name in ("offload_optimizer", "offload_param"):
            zero.setdefault(name, {"device": "none"}).setdefault("nvme_path", None)
    assert ours == built


def test_a_finding_names_the_keys_of_the_yaml_and_its_lines() -> None:
    document = _read(_config({"zero_stage": 2, "offload_param_device": "cpu"}))
    subject = document.subject
    assert subject is not None
    assert subject.form == "accelerate"
    assert subject.position("zero_optimization.offload_param.device") == (8, 3)
    found = Finding(
        rule="inert",
        severity=Severity.WARNING,
        field="zero_optimization.offload_param",
        message="zero_optimization.offload_param: zero_optimization.stage=2 does not read it",
    )
    renamed = document.in_file_words(found)
    assert renamed.field == "deepspeed_config.offload_param_device"
    assert renamed.message == (
        "deepspeed_config.offload_param_device: deepspeed_config.zero_stage=2 does not read it"
    )


def test_a_suggestion_names_the_keys_of_the_yaml_too() -> None:
    found = Finding(
        rule="inert",
        severity=Severity.WARNING,
        field="zero_optimization.offload_param",
        message="zero_optimization.offload_param: no",
        suggestion="remove offload_param, or set zero_optimization.stage to 3",
    )
    renamed = _read(_config({"zero_stage": 2})).in_file_words(found)
    assert (
        renamed.suggestion == "remove offload_param_device, or set deepspeed_config.zero_stage to 3"
    )


def test_a_key_that_the_yaml_does_not_set_is_not_in_the_config() -> None:
    subject = _read(_config({"zero_stage": 2})).subject
    assert subject is not None
    assert subject.config["zero_optimization"] == {"stage": 2}


def test_the_yaml_fills_what_the_launch_does_not_give() -> None:
    subject = _read(_config({"zero_stage": 2})).subject
    assert subject is not None
    assert subject.launch == Launch(
        launcher=Launcher.HF, gpus=8, nodes=1, started_by=RankLauncher.ACCELERATE
    )


@pytest.mark.parametrize(("given", "threads"), [(None, 6), (2, 2)])
def test_the_yaml_s_cpu_threads_count_where_none_are_given(given: int | None, threads: int) -> None:
    config = _config({"zero_stage": 2}, num_cpu_threads_per_process=6)
    subject = _read(config, cpu_threads=given).subject
    assert subject is not None
    assert subject.launch.cpu_threads == threads


@pytest.mark.parametrize(
    ("config", "launch", "expected"),
    [
        (_config({"zero_stage": 3, "zero3_init_flag": True}), {}, []),
        (_config({}), {"gpus": 4}, [("num_processes", Severity.WARNING)]),
        (_config({}, num_procs=8), {}, [("num_procs", Severity.ERROR)]),
        (
            _config({}, num_cpu_threads_per_process=6),
            {},
            [("num_cpu_threads_per_process", Severity.ERROR)],
        ),
        (
            _config({}, distributed_type="MULTI_GPU"),
            {},
            [("distributed_type", Severity.ERROR)],
        ),
        (_config({}, mixed_precision="bfloat16"), {}, [("mixed_precision", Severity.ERROR)]),
        (_config({}, mixed_precision=False), {}, [("mixed_precision", Severity.NOTE)]),
        (
            _config({"zero_stag": 3}),
            {},
            [("deepspeed_config.zero_stag", Severity.ERROR)],
        ),
        (
            _config({"zero_stage": "three"}),
            {},
            [("deepspeed_config.zero_stage", Severity.ERROR)],
        ),
        (
            _config({"zero_stage": 2, "zero3_init_flag": True}),
            {},
            [("deepspeed_config.zero3_init_flag", Severity.NOTE)],
        ),
        (
            _config({"zero_stage": 3, "offload_param_device": "nvme"}),
            {},
            [("deepspeed_config.offload_param_nvme_path", Severity.WARNING)],
        ),
        (
            _config({"deepspeed_config_file": "ds.json", "zero_stage": 3}),
            {},
            [
                ("deepspeed_config.zero_stage", Severity.ERROR),
                ("mixed_precision", Severity.ERROR),
            ],
        ),
    ],
)
def test_what_accelerate_refuses_or_passes_over(
    config: dict[str, Any], launch: dict[str, Any], expected: list[tuple[str, Severity]]
) -> None:
    assert _reported(_read(config, **launch)) == expected


def test_a_misspelt_key_gets_its_likely_spelling() -> None:
    [found] = _read(_config({"zero_stag": 3})).findings
    assert found.suggestion == "write zero_stage"


def test_the_file_that_it_names_is_judged_in_its_place(tmp_path: Path) -> None:
    config = _config({"deepspeed_config_file": "ds.json"})
    del config["mixed_precision"]
    missing = _read(config, tmp_path)
    assert missing.subject is None
    assert _reported(missing) == [("deepspeed_config.deepspeed_config_file", Severity.NOTE)]

    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}} # why')
    document = _read(config, tmp_path)
    assert document.name == "ds.json"
    assert document.subject is not None
    assert document.subject.zero_stage == 2
    assert document.subject.launch.launcher is Launcher.HF
    assert [found.rule for found in document.findings] == ["hjson-only"]


def test_accelerate_knows_these_keys_and_no_others() -> None:
    from accelerate.commands.config.config_args import (  # type: ignore[import-untyped]
        ClusterConfig,
    )
    from accelerate.commands.launch import launch_command_parser

    renamed = {"dynamo_backend", "fp16"}
    assert set(ClusterConfig.__dataclass_fields__) | renamed == TOP_LEVEL_KEYS
    arguments = vars(launch_command_parser().parse_args(["train.py"]))
    assert set(arguments) >= SECTION_KEYS
