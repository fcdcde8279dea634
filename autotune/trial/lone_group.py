"""torch's fake process group with other gathers, for what it does badly.

It copies a rank's part into each other rank's place in the buffer, one copy after the other: a
thousand launches with as many ranks. And it fails on parts that are not flat, as
the scales of ZeRO++'s quantized weights are, though NCCL only moves bytes. Here a gather is one
launch or two, of any shape. The method that torch calls is `_allgather_base` in 2.11 and
`all_gather_single` in 2.13.
"""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work
from torch.testing._internal.distributed import fake_pg

BACKEND = "lone"
_DEVICES = ("cpu", "cuda")


class _Done(Work):
    """A collective that was over when it returned; on a GPU, in stream order."""

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class _LoneGroup(dist.ProcessGroup):
    def _allgather_base(self, output: torch.Tensor, part: torch.Tensor, *_: Any) -> Work:
        return self._repeat(output, part)

    def all_gather_single(self, output: torch.Tensor, part: torch.Tensor, *_: Any) -> Work:
        return self._repeat(output, part)

    def _repeat(self, output: torch.Tensor, part: torch.Tensor) -> Work:
        places, ours = output.view(self.size(), -1), part.reshape(1, -1)
        with torch.no_grad():
            # Gathers in place, whose part lies in the buffer already, are common; it is rank 0's.
            if places.data_ptr() != ours.data_ptr():
                places[:1].copy_(ours)
            places[1:].copy_(ours)
        return _Done()


def register() -> None:
    """Make the backend known to torch.distributed."""
    dist.Backend.register_backend(BACKEND, _make_group, extended_api=True, devices=list(_DEVICES))


def _make_group(common: Any, options: Any) -> dist.ProcessGroup:
    # The stubs know only the constructor that no subclass may use.
    group = _LoneGroup(common.group_rank, common.group_size)  # type: ignore[call-arg]
    kind = dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(kind)
    fake = fake_pg._create_fake_pg(common, options)  # type: ignore[no-untyped-call]
    for device in _DEVICES:
        group._register_backend(torch.device(device), kind, fake)
    return group
