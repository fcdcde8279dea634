"""Collectives over sizes and groups of ranks."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from autotune.trial.device import Device
from autotune.trial.probe.spec import KINDS, ProbeSpec
from autotune.trial.probe.timing import median_s, whole


def time_collectives(
    spec: ProbeSpec, *, rank: int, device: Device, mark: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return one row per group, kind and size; only the ranks of a group have its rows.

    Row: `kind`, `num_bytes` (of the whole), `ranks`, `s` (this rank's median).
    """
    rows = []
    for ranks in spec.groups:
        group = dist.new_group(list(ranks))  # by all ranks, members or not
        dist.barrier()
        if rank not in ranks:
            continue
        for kind in KINDS:
            for size in spec.sizes_bytes:
                mark(f"{kind} of {size} bytes over {len(ranks)} ranks")
                tensor = whole(size, parts=len(ranks), device=device.torch_device)
                step = _step(kind, tensor, group, rank=rank, ranks=ranks)
                if step is None:
                    continue
                rows.append(
                    {
                        "kind": kind,
                        "num_bytes": tensor.numel() * tensor.element_size(),
                        "ranks": list(ranks),
                        "s": median_s(step, device=device, num_repeats=spec.num_repeats),
                    }
                )
    dist.barrier()
    return rows


def _step(
    kind: str, tensor: torch.Tensor, group: Any, *, rank: int, ranks: tuple[int, ...]
) -> Callable[[], object] | None:
    """Return the call that is timed; None for a kind that the backend does not have."""
    shard = tensor.chunk(len(ranks))[ranks.index(rank)].clone()
    match kind:
        case "all_gather":
            return lambda: dist.all_gather_into_tensor(tensor, shard, group=group)
        case "reduce_scatter":
            return lambda: dist.reduce_scatter_tensor(shard, tensor, group=group)
        case "all_reduce":
            return lambda: dist.all_reduce(tensor, group=group)
        case "broadcast":
            return lambda: dist.broadcast(tensor, ranks[0], group=group)
        case _:
            received = torch.empty_like(tensor)
            return lambda: dist.all_to_all_single(received, tensor, group=group)
