from typing import Any

import pytest

from autotune.job.launcher import READERS, Launcher
from autotune.lint.rules.hf import hf_refuses, hf_saves_shards
from autotune.lint.subject import Launch, Subject

_ZERO = {"zero_optimization": {"stage": 2}}


def _refusals(config: dict[str, Any], launcher: Launcher = Launcher.HF) -> list[str]:
    subject = Subject(config=config, launch=Launch(launcher=launcher))
    return [found.field for found in hf_refuses.findings(subject)]


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        (_ZERO, []),
        ({"zero_optimization": {}}, []),
        ({}, ["zero_optimization"]),
        ({"zero_optimization": True}, ["zero_optimization"]),
        (
            _ZERO | {"scheduler": {"params": {"warmup_num_steps": 0}}},
            ["scheduler.params.warmup_num_steps"],
        ),
        (_ZERO | {"scheduler": {"params": {"warmup_num_steps": "auto"}}}, []),
    ],
)
def test_what_accelerate_and_transformers_refuse(config: dict[str, Any], fields: list[str]) -> None:
    assert _refusals(config) == fields
    assert _refusals(config, Launcher.DEEPSPEED) == []


@pytest.mark.parametrize(
    ("zero", "reported"),
    [
        ({"stage": 3}, True),
        ({"stage": 3, "stage3_gather_16bit_weights_on_model_save": "auto"}, True),
        ({"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}, False),
        ({"stage": 3, "stage3_gather_fp16_weights_on_model_save": True}, False),
        ({"stage": 2}, False),
    ],
)
def test_shards_without_a_model_file_are_noted(zero: dict[str, Any], reported: bool) -> None:
    for launcher in READERS:
        subject = Subject(config={"zero_optimization": zero}, launch=Launch(launcher=launcher))
        assert any(hf_saves_shards.findings(subject)) == (reported and launcher is Launcher.HF)
