"""Curriculum learning, dynamic batching and random layer-token dropping, complete or not."""

from typing import Any

import pytest

from autotune import dotted
from autotune.lint.rules.data_efficiency import RULES
from tests.lint.rules.asking import reported
from tests.lint.rules.init_faults_other import COMPLETE_LTD

CURRICULUM = "data_efficiency.data_sampling.curriculum_learning"
DYNAMIC = "data_efficiency.data_sampling.dynamic_batching"
LTD = "data_efficiency.data_routing.random_ltd"
METRIC = f"{CURRICULUM}.curriculum_metrics.seqlen"
ON = {
    "data_efficiency.enabled": True,
    "data_efficiency.data_sampling.enabled": True,
    f"{CURRICULUM}.enabled": True,
}
COMPLETE = {
    "min_difficulty": 8,
    "max_difficulty": 1024,
    "schedule_type": "fixed_linear",
    "schedule_config": {"total_curriculum_step": 100, "difficulty_step": 8},
}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {f"{CURRICULUM}.enabled": True},
            [f"error curriculum-metrics {CURRICULUM}.curriculum_metrics"],
        ),
        ({f"{DYNAMIC}.enabled": 1}, [f"error dynamic-batching-tokens {DYNAMIC}.max_tokens"]),
        (
            ON | {METRIC: dotted.without(COMPLETE, frozenset({"min_difficulty"}))},
            [f"error curriculum-schedule {METRIC}.min_difficulty"],
        ),
        (
            ON | {METRIC: COMPLETE | {"schedule_type": "linear"}},
            [f"error curriculum-schedule {METRIC}.schedule_type"],
        ),
        (
            ON | {METRIC: COMPLETE | {"schedule_type": "fixed_root"}},
            [f"error curriculum-schedule {METRIC}.schedule_config.root_degree"],
        ),
        (
            {LTD: dotted.without(COMPLETE_LTD, frozenset({"total_layer_num"}))},
            [f"error random-ltd {LTD}.total_layer_num"],
        ),
        (
            {LTD: COMPLETE_LTD, f"{LTD}.random_ltd_schedule.schedule_type": "fixed_root"},
            [f"error random-ltd {LTD}.random_ltd_schedule.schedule_type"],
        ),
        (
            {LTD: COMPLETE_LTD, f"{LTD}.layer_token_lr_schedule.enabled": True},
            [f"error random-ltd {LTD}.layer_token_lr_schedule.enabled"],
        ),
    ],
)
def test_a_fault_is_found(keys: dict[str, Any], expected: list[str]) -> None:
    assert reported(RULES, keys) == expected


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {f"{CURRICULUM}.enabled": False},
        ON | {METRIC: COMPLETE},
        ON | {METRIC: {}, "data_efficiency.enabled": False},
        {f"{DYNAMIC}.enabled": True, f"{DYNAMIC}.max_tokens": 4096},
        {LTD: COMPLETE_LTD},
        {LTD: {"enabled": False}},
        {LTD: []},
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any]) -> None:
    assert reported(RULES, keys) == []
