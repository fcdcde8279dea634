import sys
from typing import Any

import pytest

from autotune.errors import ConfigError
from autotune.predict.training_job import ModelSettings, said_precision
from tests.predict.jobs import job


def test_an_empty_section_has_deepspeeds_defaults() -> None:
    zero = job({"stage": 3}).zero
    assert zero.reduce_bucket_size == 500_000_000
    assert zero.prefetch_bucket_size == 50_000_000
    assert zero.max_live_parameters == zero.max_reuse_distance == 1_000_000_000
    assert zero.param_persistence_threshold == 100_000
    assert zero.model_persistence_threshold == sys.maxsize
    assert zero.sub_group_size == 1_000_000_000
    assert zero.contiguous_gradients
    assert zero.reduce_scatter


@pytest.mark.parametrize(("stage", "default"), [(0, False), (1, False), (2, False), (3, True)])
def test_overlap_is_the_default_at_stage_3_only(stage: int, default: bool) -> None:
    assert job({"stage": stage}).zero.overlap_comm is default
    assert job({"stage": stage, "overlap_comm": not default}).zero.overlap_comm is not default


def test_short_and_long_names_of_stage_3_keys_are_one() -> None:
    assert job({"stage": 3, "stage3_prefetch_bucket_size": 7}).zero.prefetch_bucket_size == 7
    assert job({"stage": 3, "prefetch_bucket_size": 7}).zero.prefetch_bucket_size == 7


def test_deprecated_switches_still_offload() -> None:
    zero = job({"stage": 3, "cpu_offload": "true", "cpu_offload_param": True}).zero
    assert zero.offload_optimizer.device == "cpu"
    assert zero.offload_param.device == "cpu"


def test_parameter_offload_does_nothing_below_stage_3() -> None:
    assert not job({"stage": 2, "offload_param": {"device": "cpu"}}).zero.offload_param.enabled


def test_auto_counts_as_not_set() -> None:
    assert job({"stage": 2, "reduce_bucket_size": "auto"}).zero.reduce_bucket_size == 500_000_000


@pytest.mark.parametrize(
    ("keys", "element", "master", "moment"),
    [
        ({"bf16": {"enabled": True}}, 2, 4, 4),
        ({"bf16": {"enabled": False}, "fp16": {"enabled": True}}, 2, 4, 4),
        ({"bf16": {}}, 4, 4, 4),
        (
            {
                "bf16": {
                    "enabled": True,
                    "bf16_master_weights_and_grads": True,
                    "bf16_optimizer_states": True,
                }
            },
            2,
            2,
            2,
        ),
    ],
)
def test_precision_decides_sizes(
    keys: dict[str, Any], element: int, master: int, moment: int
) -> None:
    training = job({"stage": 2}, **keys)
    sizes = training.element_bytes, training.master_bytes, training.moment_bytes
    assert sizes == (element, master, moment)


@pytest.mark.parametrize(
    ("ds_config", "precision"),
    [
        ({}, "fp32"),
        ({"bf16": {"enabled": True}}, "bf16"),
        ({"bfloat16": {"enabled": True}}, "bf16"),
        ({"fp16": {"enabled": "true"}}, "fp16"),
        ({"bf16": {"enabled": "auto"}}, None),
    ],
)
def test_a_config_that_says_nothing_is_fp32(ds_config: dict[str, Any], precision: str) -> None:
    assert said_precision(ds_config) == precision


@pytest.mark.parametrize(
    ("optimizer", "moments", "foreach"),
    [
        ({"type": "AdamW"}, 2, False),
        ({"type": "Adam", "params": {"torch_adam": True}}, 2, True),
        ({"type": "Lion"}, 1, False),
        ({"type": "SGD"}, 0, False),
        ({"type": "SGD", "params": {"momentum": 0.9}}, 1, True),
    ],
)
def test_an_optimizer_has_its_state_tensors(
    optimizer: dict[str, Any], moments: int, foreach: bool
) -> None:
    training = job({"stage": 2}, optimizer=optimizer)
    assert (training.num_moments, training.foreach_optimizer) == (moments, foreach)


def test_two_of_three_batch_sizes_give_the_third() -> None:
    training = job(train_batch_size=64, train_micro_batch_size_per_gpu=2)
    assert (training.micro_batch_size, training.accumulation) == (2, 4)
    training = job(
        train_batch_size=64, train_micro_batch_size_per_gpu=None, gradient_accumulation_steps=4
    )
    assert (training.micro_batch_size, training.accumulation) == (2, 4)


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        job(
            {
                "stage": 7,
                "reduce_bucket_size": 0,
                "overlap_comm": "perhaps",
                "offload_optimizer": True,
                "stage3_prefetch_bucket_size": 1.5,
            }
        )
    assert [fault.split("=")[0] for fault in raised.value.faults] == [
        "ds_config: zero_optimization.stage",
        "ds_config: zero_optimization.overlap_comm",
        "ds_config: zero_optimization.reduce_bucket_size",
        "ds_config: zero_optimization.stage3_prefetch_bucket_size",
        "ds_config: zero_optimization.offload_optimizer",
    ] or len(raised.value.faults) == 4


@pytest.mark.parametrize(
    ("zero", "keys", "message"),
    [
        ({}, {"train_batch_size": 9}, r"train_batch_size=9: is not 1 x 1 x 8 ranks"),
        ({}, {"fp16": {"enabled": True}}, "only one may be on"),
        ({"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}, {}, "stage 3 only"),
        ({"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 2}}, {}, "from 0 to 1"),
        ({"stage": 3, "offload_param": {"device": "tape"}}, {}, "must be one of none, cpu, nvme"),
        ({"stage": 3}, {"expert_parallel": {"enabled": True, "autoep_size": 3}}, "does not divide"),
        ({"stage": 2}, {"data_types": {"grad_accum_dtype": "int8"}}, "must be one of fp32"),
    ],
)
def test_a_fault_says_what_is_allowed(
    zero: dict[str, Any], keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        job(zero, **keys)


def test_fewer_than_one_trained_parameter_is_refused() -> None:
    with pytest.raises(ConfigError, match="trainable parameters=0: must be at least 1"):
        job(settings=ModelSettings(trainable_parameters=0))
