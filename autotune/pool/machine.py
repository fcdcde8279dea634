"""What this machine has: memory, CPUs, CUDA devices. No torch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def host_memory_bytes() -> int:
    """Return the memory that processes here may use: the cgroup's limit, else the machine's."""
    total: int = psutil.virtual_memory().total
    limits = (_CGROUP / "memory.max", _CGROUP / "memory" / "memory.limit_in_bytes")
    for path in limits:
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            return min(int(text), total)
    return total


def num_cpus() -> int:
    """Return the CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def num_oom_kills() -> int:
    """Return how many processes of this cgroup the kernel has killed for memory so far."""
    for path in (_CGROUP / "memory.events", Path("/proc/vmstat")):
        try:
            lines = path.read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


def cuda_device_names() -> tuple[str, ...]:
    """Return the names of the CUDA devices that NVML sees here; none without a driver."""
    with _nvml() as pynvml:
        if pynvml is None:
            return ()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)


def cuda_device(visible_device: str) -> tuple[str, int]:
    """Return name and memory in bytes of one CUDA device, as its driver reports them.

    Args:
        visible_device: one entry of CUDA_VISIBLE_DEVICES, an index or a UUID; empty for none,
            which is called "cpu" and has 0 bytes.
    """
    with _nvml() as pynvml:
        if pynvml is None or not visible_device:
            return "cpu", 0
        handle = _handle(pynvml, visible_device)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return str(pynvml.nvmlDeviceGetName(handle)), int(memory.total)


def cuda_driver_version() -> str | None:
    """Return the version of the driver; None without one."""
    with _nvml() as pynvml:
        return None if pynvml is None else str(pynvml.nvmlSystemGetDriverVersion())


def cuda_used_bytes(visible_device: str) -> int:
    """Return what the driver counts as used on one CUDA device; 0 without one."""
    with _nvml() as pynvml:
        if pynvml is None or not visible_device:
            return 0
        return int(pynvml.nvmlDeviceGetMemoryInfo(_handle(pynvml, visible_device)).used)


def _handle(pynvml: Any, visible_device: str) -> Any:
    if visible_device.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(visible_device))
    return pynvml.nvmlDeviceGetHandleByUUID(visible_device)


@contextmanager
def _nvml() -> Iterator[Any]:
    """Open NVML; gives None without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()
