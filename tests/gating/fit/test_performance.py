from typing import Any

import pytest

from autotune.lint.finding import Severity
from tests.gating.judging import config, fields, judge

OFFLOAD: dict[str, Any] = {"offload_optimizer": {"device": "cpu"}}
FULL_OFFLOAD: dict[str, Any] = {**OFFLOAD, "offload_param": {"device": "cpu"}}


def rules(ds_config: dict[str, Any], **options: Any) -> set[str]:
    found = judge(ds_config, **options).findings
    assert all(finding.severity is Severity.WARNING for finding in found)
    return {finding.rule for finding in found}


def test_offload_of_a_job_that_fits_without_it_is_reported_with_its_cost() -> None:
    """deepspeedai/DeepSpeed#6834: 10 s an optimizer step with both offloads, 0.2 s without."""
    judgement = judge(config(3, **FULL_OFFLOAD), model=72e9, gpus=32, nodes=4, seq_len=None)
    # The first finding is about the sequence length, which is not given.
    assert fields(judgement)[1:] == [
        "zero_optimization.offload_optimizer",
        "zero_optimization.offload_param",
    ]
    message = judgement.findings[1].message
    assert "is predicted to fit without it" in message
    assert "with activation checkpointing" in message
    assert "an optimizer step instead of 5.9 s" in message


def test_the_deprecated_switch_is_an_offload_too() -> None:
    assert rules(config(2, cpu_offload=True), model="1.3b") == {"needless-offload"}


@pytest.mark.parametrize(
    ("ds_config", "options"),
    [
        pytest.param(config(3, **OFFLOAD), {"gpus": 1, "device": "a100-80gb"}, id="needed"),
        pytest.param(config(3, **OFFLOAD), {"model": "13b", "device": "a100-40gb"}, id="tight"),
        pytest.param(
            config(3, gradient_accumulation_steps=64, micro=4, **OFFLOAD),
            {"activation_checkpointing": True},
            id="stepped once in many micro steps",
        ),
        pytest.param(config(3), {}, id="none"),
    ],
)
def test_offload_that_is_needed_or_costs_little_is_not_reported(
    ds_config: dict[str, Any], options: dict[str, Any]
) -> None:
    assert rules(ds_config, **options) == set()


def test_stage_3_of_frozen_weights_that_fit_is_reported() -> None:
    """hiyouga/LlamaFactory#3499: 20 minutes at stage 3, 17 s at stage 2."""
    options: dict[str, Any] = {"model": 8e9, "gpus": 3, "seq_len": 1_024}
    ds_config = config(3, gradient_accumulation_steps=2)
    judgement = judge(ds_config, trainable_params=20_000_000, **options)
    assert fields(judgement) == ["zero_optimization.stage"]
    assert judgement.findings[0].rule == "needless-sharding"
    assert judgement.findings[0].suggestion == "zero_optimization.stage: 2"
    assert "the frozen weights fit on every device (" in judgement.findings[0].message
    assert rules(ds_config, **options) == set()


@pytest.mark.parametrize(
    ("model", "device", "trained"),
    [
        pytest.param(34.3e9, "a100-80gb", 910_000_000, id="weights that need the whole card"),
        pytest.param(8e9, "a100-80gb", 4_000_000_000, id="half of it is trained"),
        pytest.param(8e9, "titan-rtx", 20_000_000, id="a small card"),
    ],
)
def test_stage_3_that_is_needed_is_not_reported(model: float, device: str, trained: int) -> None:
    options: dict[str, Any] = {"trainable_params": trained, "seq_len": 201}
    assert "needless-sharding" not in rules(config(3), model=model, device=device, **options)
