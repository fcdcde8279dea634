"""`import autotune`: the functions, and that they answer as the commands do."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.errors import AutotuneError, ConfigError
from tests.cli.calls import autotune as command

ZERO3 = {
    "train_micro_batch_size_per_gpu": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3},
}
JOB = autotune.Job(model="7b", gpus=8, gpu_type="h100-80gb", seq_len=2_048)
OPTIONS = ["--model", "7b", "--gpus", "8", "--gpu-type", "h100-80gb", "--seq-len", "2048"]


def test_the_functions_stay_functions_whatever_was_loaded() -> None:
    code = """
import pkgutil, autotune
for module in pkgutil.iter_modules(autotune.__path__, "autotune."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
print([name for name in autotune.__all__ if not callable(getattr(autotune, name))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['__version__']"]


def test_plan_and_gate_answer_as_the_commands_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps(ZERO3), encoding="utf-8")
    planned = autotune.plan(JOB, ZERO3)
    checked = autotune.gate(file, JOB)
    assert capsys.readouterr() == ("", "")
    assert planned.answer.answer == checked.answer.answer
    printed = command("plan", str(file), *OPTIONS, "--json", cwd=tmp_path)
    assert json.loads(printed.out)["memory"] == planned.to_json()["memory"]
    printed = command("gate", str(file), *OPTIONS, "--format", "json", cwd=tmp_path)
    assert json.loads(printed.out) == checked.to_json()


def test_plan_and_gate_read_a_mapping_of_any_form_alike() -> None:
    accelerate = {
        "distributed_type": "DEEPSPEED",
        "mixed_precision": "bf16",
        "num_cpu_threads_per_process": 4,
        "deepspeed_config": {"zero_stage": 3, "gradient_accumulation_steps": 8},
    }
    planned, checked = autotune.plan(JOB, accelerate), autotune.gate(accelerate, JOB)
    assert planned.answer.to_json() == checked.answer.to_json()
    assert planned.resolved.to_json() == checked.job.to_json()
    assert planned.resolved.job.cpu_threads == 4


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"zero_optimization": {"stage": 7}}, id="stage"),
        pytest.param({"train_batch_size": 13}, id="batch"),
        pytest.param({"train_micro_batch_size_per_gpu": "x"}, id="micro batch"),
    ],
)
def test_a_config_that_cannot_be_read_ends_plan_and_is_an_error_of_the_gate(
    wrong: dict[str, Any],
) -> None:
    with pytest.raises(AutotuneError, match=next(iter(wrong))):
        autotune.plan(JOB, ZERO3 | wrong)
    assert not autotune.gate(ZERO3 | wrong, JOB).passes(strict=False)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(
            lambda: autotune.plan(JOB, "nowhere.json"),
            ConfigError,
            r"nowhere\.json: no such file",
            id="no such file",
        ),
        pytest.param(
            lambda: autotune.tune(autotune.Job(model="7b", gpus=8), no_such="modelled"),
            TypeError,
            "no_such",
            id="unknown option",
        ),
    ],
)
def test_a_wrong_call_raises(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
