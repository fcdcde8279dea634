"""The timed process group: what collectives leave, cost, and when they end."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from autotune.trial.timed_group.group import Collective, TimedGroup
from autotune.trial.timed_group.waiting import HostWaiting
from tests.clock import Clock

RANKS = (0, 2, 4, 6)
SIZE = len(RANKS)


class Group:
    """A group that writes down what it charges."""

    def __init__(self, seconds: float = 0.0, *, rank: int = 0) -> None:
        self.charged: list[Collective] = []

        def collective_s(collective: Collective) -> float:
            self.charged.append(collective)
            return seconds

        self.pg = TimedGroup(rank, SIZE, ranks=RANKS, collective_s=collective_s)


def shard() -> torch.Tensor:
    return torch.tensor([[1.0, 2.0]])


def wholes(num_parts: int = SIZE) -> torch.Tensor:
    return torch.arange(2.0 * num_parts).view(num_parts, 2)


@pytest.mark.parametrize("name", ["all_gather_single", "_allgather_base"])
def test_a_gather_repeats_the_own_shard(name: str) -> None:
    group, output = Group(), torch.empty(SIZE, 2)
    getattr(group.pg, name)(output, shard()).wait()
    assert output.tolist() == [[1.0, 2.0]] * SIZE
    assert group.charged == [Collective(kind="all_gather", num_bytes=SIZE * 8, ranks=RANKS)]


@pytest.mark.parametrize("rank", range(SIZE))
def test_a_gather_in_place_repeats_what_lies_at_the_rank_s_own_place(rank: int) -> None:
    output = wholes()
    own = output[rank].clone()
    Group(rank=rank).pg.all_gather_single(output, output[rank : rank + 1]).wait()
    assert output.tolist() == [own.tolist()] * SIZE


def test_a_gather_of_odd_bytes() -> None:
    group, output = Group(rank=1), torch.zeros(SIZE * 3, dtype=torch.int8)
    group.pg.all_gather_single(output, torch.tensor([1, 2, 3], dtype=torch.int8)).wait()
    assert output.tolist() == [1, 2, 3] * SIZE


def test_a_time_is_asked_for_once_a_kind_and_size() -> None:
    group = Group()
    for num_parts in (SIZE, SIZE, 2 * SIZE, SIZE):
        group.pg.allreduce([wholes(num_parts)]).wait()
    assert [c.num_bytes for c in group.charged] == [SIZE * 8, 2 * SIZE * 8]


@pytest.mark.parametrize("name", ["all_gather_single_coalesced", "allgather_into_tensor_coalesced"])
def test_coalesced_gathers_are_charged_as_one(name: str) -> None:
    group, outputs = Group(), [torch.empty(SIZE * 2), torch.empty(SIZE * 2)]
    getattr(group.pg, name)(outputs, [shard(), 2 * shard()]).wait()
    assert outputs[1].tolist() == [2.0, 4.0] * SIZE
    assert [c.num_bytes for c in group.charged] == [2 * SIZE * 8]


@pytest.mark.parametrize("name", ["reduce_scatter_single", "_reduce_scatter_base"])
def test_a_reduce_scatter_keeps_the_own_part_and_is_charged_for_the_whole(name: str) -> None:
    group, output = Group(), torch.empty(1, 2)
    getattr(group.pg, name)(output, wholes() + 5).wait()
    assert output.tolist() == [[5.0, 6.0]]
    assert group.charged == [Collective(kind="reduce_scatter", num_bytes=SIZE * 8, ranks=RANKS)]


def test_lists_of_tensors() -> None:
    group = Group()
    gathered = [torch.empty(1, 2) for _ in RANKS]
    group.pg.allgather([gathered], [shard()]).wait()
    kept = torch.empty(1, 2)
    group.pg.reduce_scatter([kept], [[shard() * (n + 1) for n in range(SIZE)]]).wait()
    swapped = [torch.empty(1, 2) for _ in RANKS]
    group.pg.alltoall(swapped, [shard() * n for n in range(SIZE)]).wait()
    assert [t.tolist() for t in gathered] == [shard().tolist()] * SIZE
    assert kept.tolist() == shard().tolist()
    assert swapped[3].tolist() == [[3.0, 6.0]]
    assert [c.num_bytes for c in group.charged] == [SIZE * 8] * 3


@pytest.mark.parametrize("kind", ["allreduce", "broadcast", "reduce"])
def test_what_is_reduced_or_broadcast_keeps_its_own_numbers(kind: str) -> None:
    group, tensor = Group(), shard()
    getattr(group.pg, kind)([tensor]).wait()
    assert tensor.tolist() == shard().tolist()
    assert [c.num_bytes for c in group.charged] == [8]


def test_a_gather_of_another_shape_than_the_shard_is_filled_too() -> None:
    """Quantized weights are gathered flat."""
    group, output = Group(), torch.empty(SIZE * 6, dtype=torch.int8)
    group.pg.all_gather_single(output, torch.ones(2, 3, dtype=torch.int8)).wait()
    assert output.sum() == SIZE * 6


def test_a_gather_in_place_repeats_what_lies_there() -> None:
    group, buffer = Group(), torch.arange(8.0)
    group.pg.all_gather_single(buffer, buffer[:2]).wait()
    assert buffer.tolist() == [0.0, 1.0] * SIZE


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("autotune.trial.timed_group.waiting.time", clock)
    return clock


def test_a_collective_goes_on_until_somebody_waits(clock: Clock) -> None:
    waiting, filled = HostWaiting(), []
    first = waiting.run(0.3, lambda: filled.append(1), is_async=True)
    second = waiting.run(0.3, lambda: filled.append(2), is_async=True)
    assert (first.is_done(), second.is_done(), filled) == (False, False, [1, 2])
    first.wait()
    assert (first.is_done(), second.is_done()) == (True, False)  # one after the other
    second.wait()
    assert second.is_done()
    assert clock.now == pytest.approx(0.6)


def test_a_synchronous_collective_is_done_when_it_returns(clock: Clock) -> None:
    assert HostWaiting().run(0.05, None, is_async=False).is_done()
    assert clock.now == pytest.approx(0.05)


RANK_0_OF_4 = {
    "DS_ACCELERATOR": "cpu",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}
STAGES = (1, 3)


@pytest.fixture(scope="module")
def trained() -> dict[int, Any]:
    """The results of rank 0 at each stage."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.trial.timed_group.train_timed", *map(str, STAGES)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | RANK_0_OF_4,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    results = json.loads(done.stdout.splitlines()[-1])
    assert None not in results, done.stderr[-2_000:]
    return dict(zip(STAGES, results, strict=True))


@pytest.mark.parametrize("stage", STAGES)
def test_deepspeed_trains_on_it(stage: int, trained: dict[int, Any]) -> None:
    results = trained[stage]
    assert all(0 < loss < 10 for loss in results["losses"])
    # bf16 gradients of every parameter are reduced once a step, whatever the stage calls it.
    reduced = {"all_reduce", "reduce_scatter", "reduce"} & results["kinds"].keys()
    assert reduced
    assert "all_gather" in results["kinds"]
