"""Communication between ranks besides training: their times, so that all stop together."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from autotune.trial.spec import Place


def open_store(place: Place, *, timeout_s: float) -> TCPStore:
    """Return the rendezvous store; rank 0 opens it, on a free port if `master_port` is 0."""
    return TCPStore(
        place.master_addr,
        place.master_port,
        place.world_size,
        is_master=place.rank == 0,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
    )


def open_communicator(torch_device: str) -> None:
    """Connect the ranks now: NCCL allocates its buffers, which count, in the first collective."""
    dist.all_reduce(torch.zeros(1, device=torch_device))


class Peers(Protocol):
    """The ranks of this trial, this one included."""

    def share(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return every rank's numbers, by rank; all ranks pass equally many."""


class RealPeers:
    """A separate group on gloo, so that nothing here waits for the device."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._group = dist.new_group(backend="gloo")

    def share(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return every rank's numbers, by rank; all ranks pass equally many."""
        mine = torch.tensor(numbers, dtype=torch.float64)
        theirs = [torch.empty_like(mine) for _ in range(self._world_size)]
        dist.all_gather(theirs, mine, group=self._group)
        return [t.tolist() for t in theirs]


class NoPeers:
    """An emulated rank: the others do not exist."""

    def share(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return this rank's numbers."""
        return [list(numbers)]
