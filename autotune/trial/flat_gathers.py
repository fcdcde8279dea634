"""torch's fake process group with one mend: gathers of tensors that are not flat.

ZeRO++ gathers the scales of its quantized weights as a column into a flat buffer. NCCL moves bytes;
the fake group copies the column into each rank's part of the buffer, and fails on the shapes. The
method that torch calls is `_allgather_base` in 2.11 and `all_gather_single` in 2.13.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import fake_pg

BACKEND = "fake_flat"
_DEVICES = ("cpu", "cuda")


class _FlatGathers(dist.ProcessGroup):
    def _allgather_base(self, output: torch.Tensor, part: torch.Tensor, *options: Any) -> Any:
        return super()._allgather_base(output.view(-1), part.reshape(-1), *options)

    def all_gather_single(self, output: torch.Tensor, part: torch.Tensor, *options: Any) -> Any:
        return super().all_gather_single(output.view(-1), part.reshape(-1), *options)


def register() -> None:
    """Make the backend known to torch.distributed."""
    dist.Backend.register_backend(BACKEND, _make_group, extended_api=True, devices=list(_DEVICES))


def _make_group(common: Any, options: Any) -> dist.ProcessGroup:
    # The stubs know only the constructor that no subclass may use.
    group = _FlatGathers(common.group_rank, common.group_size)  # type: ignore[call-arg]
    kind = dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(kind)
    fake = fake_pg._create_fake_pg(common, options)  # type: ignore[no-untyped-call]
    for device in _DEVICES:
        group._register_backend(torch.device(device), kind, fake)
    return group
