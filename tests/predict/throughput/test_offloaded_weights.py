"""Weights that live on the host or its drive between uses."""

from dataclasses import replace
from typing import Any

import pytest

from autotune.predict.memory.summary import lay_out
from autotune.predict.throughput import SpeedSurroundings
from autotune.predict.throughput.gather_plan import plan_gathers
from autotune.predict.throughput.module_visits import list_visits
from autotune.predict.throughput.nvme_weights import share_on_drive, written_elements
from autotune.predict.throughput.predict import step_items
from autotune.predict.training_job import ModelSettings, Training
from tests.predict.jobs import job
from tests.predict.rows import H200

NODE = SpeedSurroundings.of(H200, local_ranks=8)
DRIVE_BYTES_PER_S = 5e7
SLOW_DRIVE = replace(NODE, nvme_bytes_per_s=DRIVE_BYTES_PER_S)


def _nvme(**keys: Any) -> Training:
    offload = {"device": "nvme", "nvme_path": "/nvme", "max_in_cpu": 0} | keys
    return _offloaded(offload)


def _offloaded(offload: dict[str, Any]) -> Training:
    """A 1.3B on eight ranks: 0.17 billion elements each."""
    return job({"stage": 3, "sub_group_size": 50_000_000, "offload_param": offload})


def _micro_step_s(training: Training, around: SpeedSurroundings = SLOW_DRIVE) -> float:
    items = step_items(training, around)
    return sum(items.values()) - items["optimizer"]


def _read_s(training: Training) -> float:
    """What a slow drive or bus needs for what a rank gives to all gathers of a step."""
    plan = plan_gathers(training, list_visits(training, H200))
    elements = sum(gather.num_elements for gather in plan.gathers) / training.world_size
    return training.element_bytes * elements / DRIVE_BYTES_PER_S


def test_weights_queue_for_the_drive() -> None:
    training = _nvme()
    fast = replace(NODE, nvme_bytes_per_s=1e12)
    waited_s = _micro_step_s(training) - _micro_step_s(training, fast)
    assert waited_s == pytest.approx(_read_s(training), rel=0.15)


def test_weights_on_the_host_queue_for_the_bus() -> None:
    training = _offloaded({"device": "cpu"})
    slow, fast = (
        _micro_step_s(training, replace(NODE, host_bytes_per_s=rate))
        for rate in (DRIVE_BYTES_PER_S, 1e12)
    )
    waited_s = slow - fast
    assert waited_s == pytest.approx(_read_s(training), rel=0.15)


def test_what_max_in_cpu_keeps_is_not_read() -> None:
    """Whole sub-groups, the first ones, in elements of a rank: of four here, two."""
    shares = [share_on_drive(_nvme(max_in_cpu=n)) for n in (0, 40_000_000, 120_000_000, 10**9)]
    assert shares[:2] == [1, 1]
    assert shares[2] == pytest.approx(1 - 2 * 5 / 17, abs=0.1)
    assert shares[3] == 0
    none, some, all_of_it = (_nvme(max_in_cpu=n) for n in (0, 120_000_000, 10**9))
    saved_s = _micro_step_s(none) - _micro_step_s(some)
    assert saved_s == pytest.approx((1 - shares[2]) * _read_s(none), rel=0.1)
    assert _micro_step_s(all_of_it) == _micro_step_s(_offloaded({"device": "cpu"}))


def test_weights_that_are_not_offloaded_are_on_no_drive() -> None:
    for zero in ({}, {"offload_param": {"device": "cpu"}}):
        assert share_on_drive(job({"stage": 3} | zero)) == 0


def test_updated_weights_are_written_to_the_drive_unless_they_stay() -> None:
    elements = sum(lay_out(_nvme()).shards)
    none, some, all_of_it, host = (
        step_items(training, SLOW_DRIVE)["optimizer"]
        for training in (
            *(_nvme(max_in_cpu=n) for n in (0, 120_000_000, 10**9)),
            _offloaded({"device": "cpu"}),
        )
    )
    assert none - host == pytest.approx(2 * elements / DRIVE_BYTES_PER_S)
    assert all_of_it == host
    share = share_on_drive(_nvme(max_in_cpu=120_000_000))
    assert some - host == pytest.approx(share * (none - host))


def test_frozen_weights_are_never_written() -> None:
    adapters = ModelSettings(trainable_parameters=4_000_000)
    zero = {"stage": 3, "offload_param": {"device": "nvme", "max_in_cpu": 0}}
    assert 0 < written_elements(job(zero, settings=adapters)) < 1_000_000
