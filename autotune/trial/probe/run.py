"""Runs one rank of a probe."""

from collections.abc import Callable
from typing import Any

from autotune.trial.device import Device
from autotune.trial.probe.collectives import time_collectives
from autotune.trial.probe.host import load_async_io, time_cpu_adam, time_nvme, time_transfers
from autotune.trial.probe.spec import ProbeSpec


def probe(
    spec: ProbeSpec, *, rank: int, device: Device, mark: Callable[[str], None]
) -> dict[str, Any]:
    """Time all parts; the process group must exist.

    Args:
        spec: the probe.
        rank: this rank.
        device: this rank's device.
        mark: called before every part, to detect a hang.

    Returns:
        JSON values: `rank`, `collectives`, `transfers`, `cpu_adam`, `nvme`.
    """
    mark("DeepSpeed's io")
    async_io = load_async_io(spec)
    collectives = time_collectives(spec, rank=rank, device=device, mark=mark)
    mark("copies between host and device")
    transfers = time_transfers(spec, device=device)
    mark("CPUAdam")
    cpu_adam = time_cpu_adam(spec, rank=rank)
    mark("NVMe")
    return {
        "rank": rank,
        "collectives": collectives,
        "transfers": transfers,
        "cpu_adam": cpu_adam,
        "nvme": time_nvme(spec, rank=rank, async_io=async_io),
    }
