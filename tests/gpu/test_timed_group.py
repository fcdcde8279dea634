"""The timed group on a CUDA device: what it leaves is right, and takes the time it should."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from autotune.job.device import catalogue
from autotune.predict.links.communication import Group, Links, collective_s
from autotune.trial.timed_group import group

pytestmark = pytest.mark.gpu

RANK, RANKS = 1, 4
SECONDS = 5e-3
LARGE = 2**28
"""Bytes of a shard whose gather takes what NVLink would."""
NUM_BYTES = (2**26, 2**26 + 2, 6)
"""Of a shard: in vectors, not in vectors, nearly nothing."""


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    """Rank 1 of 4; a collective takes 5 ms, but for a large gather."""
    torch.cuda.set_device(0)
    group.register(lambda one: nvlink_s() if one.num_bytes == RANKS * LARGE else SECONDS)
    dist.init_process_group(group.BACKEND, store=HashStore(), rank=RANK, world_size=RANKS)
    yield
    dist.destroy_process_group()


def nvlink_s() -> float:
    """Return what the fastest link of the catalogue would need for the large gather."""
    fastest = max(catalogue(), key=lambda device: device.link_bytes_per_s or 0)
    links = Links.of_device(fastest)
    return collective_s("all_gather", RANKS * LARGE, Group(ranks=RANKS), links)


def random_bytes(num: int) -> torch.Tensor:
    return torch.randint(-128, 128, (num,), dtype=torch.int8, device="cuda")


def milliseconds(call: Callable[[], Any]) -> float:
    """Return what a call takes on the device, once its kernels are loaded."""
    call()
    torch.cuda.synchronize()
    torch.cuda._sleep(10_000_000)  # type: ignore[no-untyped-call]
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


@pytest.mark.parametrize("num", NUM_BYTES)
def test_a_gather_repeats_the_shard_in_its_time(num: int) -> None:
    shard, output = random_bytes(num), random_bytes(RANKS * num)
    took = milliseconds(lambda: dist.all_gather_into_tensor(output, shard))
    assert (output.view(RANKS, num) == shard).all()
    assert SECONDS * 1e3 <= took < SECONDS * 1e3 + 0.1


def test_a_large_gather_is_copied_as_fast_as_any_link_sends_it() -> None:
    shard, output = random_bytes(LARGE), random_bytes(RANKS * LARGE)
    took = milliseconds(lambda: dist.all_gather_into_tensor(output, shard))
    assert (output.view(RANKS, LARGE) == shard).all()
    assert nvlink_s() * 1e3 <= took < nvlink_s() * 1e3 * 1.02 + 0.05


@pytest.mark.parametrize("num", NUM_BYTES)
def test_a_gather_in_place_leaves_the_own_part(num: int) -> None:
    output = random_bytes(RANKS * num)
    own = output[RANK * num : (RANK + 1) * num].clone()
    dist.all_gather_into_tensor(output, output[RANK * num : (RANK + 1) * num])
    assert (output.view(RANKS, num) == own).all()


@pytest.mark.parametrize("num", NUM_BYTES)
def test_a_reduce_scatter_keeps_the_own_part_in_its_time(num: int) -> None:
    shard, whole = random_bytes(num), random_bytes(RANKS * num)
    took = milliseconds(lambda: dist.reduce_scatter_tensor(shard, whole))
    assert (shard == whole.view(RANKS, num)[RANK]).all()
    assert SECONDS * 1e3 <= took < SECONDS * 1e3 + 0.1


def test_an_all_reduce_leaves_the_numbers_in_its_time() -> None:
    tensor = random_bytes(1000)
    before = tensor.clone()
    assert SECONDS * 1e3 <= milliseconds(lambda: dist.all_reduce(tensor)) < SECONDS * 1e3 + 0.1
    assert (tensor == before).all()


def test_lists_of_tensors_take_one_collective_s_time() -> None:
    shard = random_bytes(1000)
    outputs = [random_bytes(1000) for _ in range(RANKS)]
    took = milliseconds(lambda: dist.all_gather(outputs, shard))
    assert all((output == shard).all() for output in outputs)
    assert SECONDS * 1e3 <= took < SECONDS * 1e3 + 0.1


def test_what_is_computed_meanwhile_does_not_wait_until_somebody_waits() -> None:
    tensor, other = random_bytes(1000), torch.zeros(1000, device="cuda")
    works: list[Any] = []

    def start() -> None:
        works.append(dist.all_reduce(tensor, async_op=True))
        other.add_(1)

    def start_and_wait() -> None:
        start()
        works[-1].wait()

    assert milliseconds(start) < SECONDS * 1e3 / 2
    assert milliseconds(start_and_wait) > SECONDS * 1e3 / 2


def test_two_that_go_on_at_once_come_one_after_the_other() -> None:
    tensor = random_bytes(1000)

    def both() -> None:
        works = [dist.all_reduce(tensor, async_op=True) for _ in range(2)]
        works[-1].wait()

    assert 2 * SECONDS * 1e3 <= milliseconds(both) < 2 * SECONDS * 1e3 + 0.2
