"""Public configurations whose memory verdict is known, judged as a gate would."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.job.assumed_shape import assumed_shape
from autotune.job.ceiling import GIB
from autotune.job.device import Device, find_device
from autotune.job.workload import Workload
from autotune.lint.finding import Verdict
from autotune.plan.planned_job import ASSUMED_ACTIVATIONS
from autotune.predict.memory.fit import Answer, predict_fit
from autotune.predict.memory.predict import Surroundings, predict_memory
from autotune.predict.training_job import ModelSettings, read_training

FOLDER = Path(__file__).parents[2] / "cases"
SHORTEST = 128
"""Tokens assumed where a report does not say: what cannot be judged is not judged."""


def memory_cases() -> list[Path]:
    found = []
    for folder in sorted(FOLDER.iterdir()):
        case = yaml.safe_load((folder / "case.yaml").read_text(encoding="utf-8"))
        if case["category"] == "memory" and "gpus" in case.get("hardware", {}):
            found.append(folder)
    return found


def device_of(hardware: Mapping[str, Any]) -> Device:
    memory = int(hardware["gpu_mem_gib"] * GIB)
    if "gpu_type" not in hardware:
        return replace(find_device("v100-32gb"), memory_bytes=memory)
    device = find_device(hardware["gpu_type"])
    # One name may stand for two sizes: V100, A100.
    near = abs(device.memory_bytes - memory) < memory / 8
    return device if near else replace(device, memory_bytes=memory)


def answers_of(folder: Path) -> set[Answer]:
    case = yaml.safe_load((folder / "case.yaml").read_text(encoding="utf-8"))
    ds_config = json.loads((folder / "ds_config.json").read_text(encoding="utf-8"))
    hardware, model = case["hardware"], case["model"]
    said = case.get("training", {})
    tensor_parallel = case.get("context", {}).get("tensor_parallel", 1)
    ranks = hardware["gpus"] // tensor_parallel
    workload = Workload(
        model=assumed_shape(model["params"] / tensor_parallel),
        seq_len=said.get("seq_len", SHORTEST),
        global_batch_size=ranks,
        world_size=ranks,
        precision="bf16",
        optimizer={},
        gradient_clipping=1.0,
    )
    device = device_of(hardware)
    host_gib = hardware.get("host_ram_gib")
    surroundings = Surroundings(
        device=device,
        ceiling_bytes=device.memory_bytes,
        local_ranks=hardware["gpus"] // hardware.get("nodes", 1),
        host_bytes=host_gib and host_gib * GIB,
    )
    settings = ModelSettings(trainable_parameters=model.get("trainable_params"))
    known = said.get("activation_checkpointing")
    choices = [
        replace(settings, activation_checkpointing=choice)
        for choice in ((True, False) if known is None else (known,))
    ]
    if known is None and settings.trainable_parameters is not None:
        choices[1] = replace(settings, trained_on_top=True)
    return {
        predict_fit(
            read_training(ds_config, workload, choice), surroundings, unsure=ASSUMED_ACTIVATIONS
        ).answer
        for choice in choices
    }


def verdict_of(answers: set[Answer]) -> Verdict:
    """Return what a gate would say if all else were known."""
    if answers == {Answer.FITS}:
        return Verdict.OK
    return Verdict.ERROR if answers == {Answer.DOES_NOT_FIT} else Verdict.WARNING


def test_the_cases_are_there() -> None:
    assert len(memory_cases()) == 13


@pytest.mark.parametrize("folder", memory_cases(), ids=lambda folder: folder.name)
def test_a_known_memory_verdict_comes_out(folder: Path) -> None:
    expected = yaml.safe_load((folder / "case.yaml").read_text(encoding="utf-8"))["expected"]
    acceptable = {expected["verdict"], *expected.get("also_acceptable", ())}
    assert verdict_of(answers_of(folder)) in acceptable


def test_bucket_memory_is_what_a_report_measured() -> None:
    """Case 122: MB of a 1.8B model by bucket; fp16, ZeRO-2."""
    folder = FOLDER / "122-vit-1.8b-zero2-bucket-memory"
    ds_config = json.loads((folder / "ds_config.json").read_text(encoding="utf-8"))
    workload = Workload(
        model=assumed_shape(1.8e9),
        seq_len=SHORTEST,
        global_batch_size=8,
        world_size=8,
        precision="fp16",
        optimizer={},
        gradient_clipping=1.0,
    )
    settings = ModelSettings(activation_checkpointing=True)
    mebibytes = {}
    for overlap in (True, False):
        zero = ds_config["zero_optimization"] | {"overlap_comm": overlap}
        training = read_training(ds_config | {"zero_optimization": zero}, workload, settings)
        surroundings = Surroundings(device=find_device("v100-32gb"))
        items = predict_memory(training, surroundings).device.items
        mebibytes[overlap] = items["reduce_bucket"] / 2**20
    assert mebibytes[True] - mebibytes[False] == pytest.approx(21_152 - 20_198, rel=0.01)
