from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune import dotted
from autotune.ds_config.build import (
    MICRO_BATCH,
    build_ds_config,
    nearest_divisors,
    shorten,
    without_searched,
)
from autotune.errors import ConfigError
from autotune.job.workload import Workload
from tests.search.setting import tiny_workload

WORKLOAD = tiny_workload(global_batch_size=24)


@given(st.integers(1, 64), st.integers(1, 16), st.data())
def test_the_three_batch_sizes_always_multiply(
    per_rank: int, gpus: int, data: st.DataObject
) -> None:
    workload = tiny_workload(gpus=gpus, global_batch_size=per_rank * gpus)
    divisors = [n for n in range(1, per_rank + 1) if per_rank % n == 0]
    micro = data.draw(st.sampled_from(divisors))
    config = build_ds_config({}, workload, {MICRO_BATCH: micro})
    assert config[MICRO_BATCH] == micro
    assert config["train_batch_size"] == per_rank * gpus
    assert micro * config["gradient_accumulation_steps"] * gpus == config["train_batch_size"]
    for timed in {1, min(2, config["gradient_accumulation_steps"])}:
        short = shorten(config, timed_accumulation=timed)
        assert short["train_batch_size"] == micro * timed * gpus
        assert short["gradient_accumulation_steps"] == timed


@pytest.mark.parametrize(
    ("base", "micro"),
    [
        ({}, 12),
        ({MICRO_BATCH: 3}, 3),
        ({MICRO_BATCH: "auto"}, 12),
        ({"gradient_accumulation_steps": 4}, 3),
        ({"gradient_accumulation_steps": "auto", "train_batch_size": 24}, 12),
    ],
)
def test_a_micro_batch_that_is_not_searched_is_deepspeeds(base: dict[str, Any], micro: int) -> None:
    assert build_ds_config(base, WORKLOAD, {})[MICRO_BATCH] == micro


def test_a_micro_batch_that_does_not_divide_names_its_neighbours() -> None:
    with pytest.raises(ConfigError, match=r"per_gpu=5: does not divide the 12 .*nearest: 4, 6"):
        build_ds_config({}, WORKLOAD, {MICRO_BATCH: 5})


@given(st.integers(1, 300), st.integers(1, 400))
def test_nearest_divisors_are_divisors_with_none_between(number: int, wanted: int) -> None:
    near = nearest_divisors(number, wanted)
    assert all(number % n == 0 for n in near)
    between = [n for n in range(min(near), max(near)) if number % n == 0]
    assert between in ([min(near)], [])


def test_a_searched_key_that_a_proposal_leaves_out_is_left_out() -> None:
    base = {"zero_optimization": {"stage": 3, "sub_group_size": 7, "round_robin_gradients": True}}
    config = build_ds_config(
        base,
        WORKLOAD,
        {"zero_optimization.stage": 1},
        searched=["zero_optimization.stage", "zero_optimization.sub_group_size"],
    )
    assert config["zero_optimization"] == {"stage": 1, "round_robin_gradients": True}


@pytest.mark.parametrize(
    ("zero", "searched"),
    [
        ({"cpu_offload": True}, "offload_optimizer.device"),
        ({"cpu_offload": False}, "offload_optimizer.device"),
        ({"cpu_offload_param": True}, "offload_param.device"),
        ({"prefetch_bucket_size": 7}, "stage3_prefetch_bucket_size"),
    ],
)
def test_another_name_of_a_searched_key_goes_too(zero: dict[str, Any], searched: str) -> None:
    left = without_searched({"zero_optimization": zero}, [f"zero_optimization.{searched}"])
    assert left == {}


@pytest.mark.parametrize(
    ("precision", "base", "sections"),
    [
        ("bf16", {}, {"bf16": {"enabled": True}}),
        ("fp32", {}, {}),
        ("fp32", {"bf16": {"enabled": True}}, {"bf16": {"enabled": False}}),
        (
            "fp16",
            {"bf16": {"enabled": True}, "fp16": {"loss_scale": 0}},
            {"bf16": {"enabled": False}, "fp16": {"enabled": True, "loss_scale": 0}},
        ),
    ],
)
def test_the_precision_is_the_workloads(
    precision: str, base: dict[str, Any], sections: dict[str, Any]
) -> None:
    config = build_ds_config(base, tiny_workload(precision=precision), {})
    assert {k: v for k, v in config.items() if k in ("bf16", "fp16")} == sections


def test_a_trial_opens_no_run_that_anybody_sees() -> None:
    base = {name: {"enabled": True} for name in ("wandb", "tensorboard", "csv_monitor", "comet")}
    config = build_ds_config(base, WORKLOAD, {})
    assert config.keys() >= base.keys()
    assert not shorten(config, timed_accumulation=1).keys() & base.keys()


def test_the_base_itself_is_never_changed() -> None:
    base: dict[str, Any] = {"zero_optimization": {"stage": 1}, "optimizer": {"type": "Adam"}}
    workload: Workload = tiny_workload(base=base)
    before = dotted.flatten(base)
    config = build_ds_config(base, workload, {"zero_optimization.stage": 2})
    config["zero_optimization"]["stage"] = 3
    config["optimizer"]["type"] = "SGD"
    assert dotted.flatten(base) == before
