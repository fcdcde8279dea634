"""What ranks tell each other beside the training: their times, so that all stop at once."""

from collections.abc import Sequence
from datetime import timedelta

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


class Peers:
    """A group of its own on gloo, so that nothing here waits on the device."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._group = dist.new_group(backend="gloo")

    def share(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return every rank's numbers, by rank; all ranks pass equally many."""
        mine = torch.tensor(numbers, dtype=torch.float64)
        theirs = [torch.empty_like(mine) for _ in range(self._world_size)]
        dist.all_gather(theirs, mine, group=self._group)
        return [t.tolist() for t in theirs]
