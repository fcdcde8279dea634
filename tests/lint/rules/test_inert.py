"""Keys that cannot act are notes, and blocks that are switched off are not reported."""

from typing import Any

import pytest

from autotune import dotted
from autotune.ds_config.inert import inert_keys
from autotune.lint.finding import Finding, Severity
from autotune.lint.rules import inert
from autotune.lint.subject import Launch, Subject

ZERO = "zero_optimization"


def reported(config: dict[str, Any], *, gpus: int | None = None) -> list[Finding]:
    subject = Subject(config=config, launch=Launch(gpus=gpus))
    return [finding for rule in inert.RULES for finding in rule.findings(subject)]


def test_left_over_keys_are_notes_one_for_each_reason() -> None:
    config = {
        ZERO: {
            "stage": 2,
            "sub_group_size": 1e9,
            "stage3_max_live_parameters": 1e9,
            "allgather_bucket_size": 2e8,
        },
        "aio": {"block_size": 1048576, "queue_depth": 8},
    }
    found = reported(config)
    assert [(f.field, f.severity) for f in found] == [
        (f"{ZERO}.sub_group_size", Severity.NOTE),
        (f"{ZERO}.allgather_bucket_size", Severity.NOTE),
        ("aio.block_size", Severity.NOTE),
    ]
    assert "only ZeRO stage 3 reads it; likewise stage3_max_live_parameters" in found[0].message


def test_a_fixed_config_has_no_key_without_effect() -> None:
    config: dict[str, Any] = {
        ZERO: {"stage": 1, "sub_group_size": 5, "stage3_max_reuse_distance": 5, "elastic": 1},
        "aio": {"block_size": 5},
    }
    for finding in reported(config):
        assert finding.fix is not None
        config = finding.fix.applied(config)
    assert config == {ZERO: {"stage": 1, "elastic": 1}}
    assert inert_keys(dotted.flatten(config)) == {}


@pytest.mark.parametrize(
    "config",
    [
        {ZERO: {"stage": 3, "offload_param": {"device": "none", "pin_memory": True}}},
        {ZERO: {"stage": 2, "offload_optimizer": {"device": "none", "pin_memory": True}}},
        {"bf16": {"enabled": True}, "fp16": {"enabled": False, "loss_scale": 0, "hysteresis": 2}},
        {"fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16}},
        {"flops_profiler": {"enabled": False, "profile_step": 5}},
        {"tensorboard": {"enabled": False, "output_path": "logs"}},
    ],
)
def test_other_keys_of_a_block_that_is_off_are_not_reported(config: dict[str, Any]) -> None:
    assert reported(config) == []


@pytest.mark.parametrize(
    "section",
    [
        {"stage": 2, "offload_param": {"device": "cpu"}},
        {"stage": 2, "zero_quantized_weights": True, "zero_hpz_partition_size": 8},
        {"stage": 2, "cpu_offload_use_pin_memory": True},
        {"stage": 3, "prefetch_bucket_size": 1, "stage3_prefetch_bucket_size": 2},
    ],
)
def test_a_key_with_another_rule_is_reported_once(section: dict[str, Any]) -> None:
    assert reported({ZERO: section}) == []


def test_the_number_of_ranks_decides_what_acts_among_them() -> None:
    config = {ZERO: {"stage": 2, "round_robin_gradients": True}}
    assert reported(config) == []
    assert reported(config, gpus=8) == []
    [finding] = reported(config, gpus=1)
    assert "one rank" in finding.message
