from typing import Any

import pytest

from autotune.job.ceiling import GIB
from autotune.predict.memory.host import BASE_BYTES, HostMemory, host_memory, pinned
from autotune.predict.program.families import program
from tests.predict.jobs import job


def host(zero: dict[str, Any], **keys: Any) -> HostMemory:
    training = job(zero, **keys)
    return host_memory(training, program(training).parameters, emulated=True)


@pytest.mark.parametrize(
    ("asked", "taken"), [(0, 1), (1, 1), (5, 8), (2**30, 2**30), (2**30 + 1, 2**31)]
)
def test_pinned_memory_takes_powers_of_two(asked: int, taken: int) -> None:
    assert pinned(asked) == taken
    assert pinned(asked, pin=False) == max(asked, 1)


def test_without_offload_there_is_only_the_process() -> None:
    for stage in (0, 1, 2):
        assert host({"stage": stage}).items == {"process": BASE_BYTES}


def test_offloaded_states_are_on_the_host() -> None:
    parameters = 1_345_423_360
    items = host({"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": False}}).items
    assert items["moments"] == pytest.approx(8 * parameters / 8, rel=0.001)
    assert items["master_weights"] == pytest.approx(4 * parameters / 8, rel=0.001)
    assert items["gradients"] == pytest.approx(4 * parameters / 8, rel=0.001)


def test_pinning_costs_up_to_twice() -> None:
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    loose = {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": False}}
    for item in ("master_weights", "gradients", "gradient_buffer"):
        assert 1 <= host(zero).items[item] / host(loose).items[item] < 2
    assert host(zero).items["moments"] == host(loose).items["moments"]


def test_a_ratio_leaves_sub_groups_on_the_device() -> None:
    offload = {"device": "cpu", "ratio": 0.5}
    zero = {"stage": 3, "sub_group_size": 10_000_000, "offload_optimizer": offload}
    whole = zero | {"offload_optimizer": {"device": "cpu"}}
    assert host(zero).items["moments"] == pytest.approx(host(whole).items["moments"] / 2, rel=0.1)


def test_nvme_keeps_buffers_and_writes_the_rest() -> None:
    nvme = {"device": "nvme", "nvme_path": "/local"}
    zero = {"stage": 3, "sub_group_size": 20_000_000, "offload_optimizer": nvme}
    memory = host(zero)
    assert "moments" not in memory.items
    # Master weights, gradients and two moments of every element.
    assert memory.nvme_bytes == pytest.approx(16 * 1_345_423_360 / 8, rel=0.001)
    assert memory.items["swap_buffers"] < 1 * GIB


def test_stages_1_and_2_take_nvme_for_cpu() -> None:
    nvme = {"device": "nvme", "nvme_path": "/local"}
    memory = host({"stage": 2, "offload_optimizer": nvme})
    assert memory.nvme_bytes == 0
    assert "moments" in memory.items


def test_accumulation_keeps_gradients_of_their_own() -> None:
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    assert "accumulated_gradients" not in host(zero).items
    assert "accumulated_gradients" in host(zero, gradient_accumulation_steps=2).items


def test_offloaded_parameters_are_on_the_host() -> None:
    zero = {
        "stage": 3,
        "offload_optimizer": {"device": "cpu"},
        "offload_param": {"device": "cpu", "pin_memory": False},
    }
    assert host(zero).items["weights"] == pytest.approx(2 * 1_345_423_360 / 8, rel=0.001)
