"""Times what ranks of a node share: the bus between host and device, the cores, the drive.

Every rank does the same at the same time, as in a training step; so the numbers are one rank's
share, not those of a single rank.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from autotune.trial.device import Device
from autotune.trial.probe.spec import ProbeSpec
from autotune.trial.probe.timing import median_host_s, median_s

_ADAM_REPEATS = 5


def time_transfers(spec: ProbeSpec, *, device: Device) -> dict[str, float] | None:
    """Return bytes/s to the device and back, from pinned memory; None on CPU ranks."""
    if device.torch_device == "cpu" or not spec.transfer_bytes:
        return None
    host = torch.empty(spec.transfer_bytes, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(spec.transfer_bytes, dtype=torch.uint8, device=device.torch_device)
    rates = {}
    for name, target, source in (("to_device", there, host), ("to_host", host, there)):
        dist.barrier()
        copy = partial(target.copy_, source, non_blocking=True)
        seconds = median_s(copy, device=device, num_repeats=spec.num_repeats)
        rates[f"{name}_bytes_per_s"] = spec.transfer_bytes / seconds
    return rates


def time_cpu_adam(spec: ProbeSpec, *, rank: int) -> dict[str, float] | None:
    """Return the parameters that DeepSpeed's CPUAdam steps a second on this rank's threads.

    `elements_per_s` with all ranks at once; `alone_elements_per_s` with the others idle, on rank 0
    only. None where it is left out. On CPU ranks torch's Adam is used, which needs no compilation.
    """
    if not spec.adam_elements:
        return None
    parameter = torch.nn.Parameter(torch.zeros(spec.adam_elements))
    parameter.grad = torch.ones_like(parameter)
    optimizer: Any
    if spec.device_kind == "cuda":
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        optimizer = DeepSpeedCPUAdam([parameter], lr=1e-4)
    else:
        optimizer = torch.optim.AdamW([parameter], lr=1e-4)
    rates = {"num_threads": float(torch.get_num_threads())}
    if rank == 0:
        alone_s = median_host_s(optimizer.step, num_repeats=_ADAM_REPEATS)
        rates["alone_elements_per_s"] = spec.adam_elements / alone_s
    dist.barrier()
    seconds = median_host_s(optimizer.step, num_repeats=_ADAM_REPEATS)
    dist.barrier()
    return rates | {"elements_per_s": spec.adam_elements / seconds}


def load_async_io(spec: ProbeSpec) -> Any:
    """Return DeepSpeed's asynchronous io; None where NVMe is left out.

    To be called first, so that a missing folder or op is reported before anything is timed.

    Raises:
        NotADirectoryError: this node has no such folder.
    """
    if spec.nvme_path is None:
        return None
    if not Path(spec.nvme_path).is_dir():
        raise NotADirectoryError(f"--nvme-path {spec.nvme_path}: not a folder on this node")
    from deepspeed.ops.op_builder import AsyncIOBuilder

    return AsyncIOBuilder().load()


def time_nvme(spec: ProbeSpec, *, rank: int, async_io: Any) -> dict[str, float] | None:
    """Return bytes/s of this rank writing and reading; None where NVMe is left out."""
    if spec.nvme_path is None:
        return None
    # block size, queue depth, single submit, overlap events, threads: typical results of
    # ds_nvme_tune.
    settings = (1 << 20, 128, False, True, 8)
    handle = async_io.aio_handle(*settings)
    buffer = handle.new_cpu_locked_tensor(spec.nvme_bytes, torch.empty(0, dtype=torch.uint8))
    path = Path(spec.nvme_path) / f"autotune-probe-{rank}.bin"
    rates = {}
    try:
        for name, call in (("write", handle.sync_pwrite), ("read", handle.sync_pread)):
            dist.barrier()
            seconds = median_host_s(partial(call, buffer, str(path), 0), num_repeats=3)
            rates[f"{name}_bytes_per_s"] = spec.nvme_bytes / seconds
    finally:
        path.unlink(missing_ok=True)
        handle.free_cpu_locked_tensor(buffer)
    return rates
