"""Facts about this machine: memory, CPUs, CUDA devices. Does not import torch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_OOM_CONTROL = "memory.oom_control"
"""Of cgroup v1; it has `oom_kill` since Linux 4.13."""


def host_memory_bytes() -> int:
    """Return the memory that processes here may use: the lowest cgroup limit, or the machine's."""
    total: int = psutil.virtual_memory().total
    limits = [total]
    for folder in _memory_cgroups():
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _text(folder / name).strip()
            if text.isdigit():
                limits.append(int(text))
    return min(limits)


def num_cpus() -> int:
    """Return the CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def num_oom_kills() -> int:
    """Return how many processes of this cgroup the kernel has killed for memory so far.

    Without a cgroup counter, those of the whole machine. Does not need the kernel log, which
    containers cannot read.
    """
    folders = _memory_cgroups()
    counters = [folder / name for folder in folders for name in ("memory.events", _OOM_CONTROL)]
    for path in (*counters, _PROC / "vmstat"):
        for line in _text(path).splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


def _memory_cgroups() -> list[Path]:
    """Return the folders of this process's memory cgroup and of those above it, from the innermost.

    In a container without a cgroup namespace, the kernel reports the path on the host; only the
    root of the mount exists, and it is the container's.
    """
    folders: list[Path] = []
    for line in _text(_PROC / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root = _CGROUP
        elif "memory" in controllers.split(","):
            root = _CGROUP / "memory"
        else:
            continue
        own = root / path.strip("/")
        folders += [own, *own.parents[: len(own.relative_to(root).parts)]]
    return [folder for folder in folders if folder.is_dir()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def cuda_device_names() -> tuple[str, ...]:
    """Return the names of the CUDA devices that NVML sees here; none without a driver."""
    with nvml() as pynvml:
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
    with nvml() as pynvml:
        if pynvml is None or not visible_device:
            return "cpu", 0
        handle = nvml_handle(pynvml, visible_device)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return str(pynvml.nvmlDeviceGetName(handle)), int(memory.total)


def cuda_driver_version() -> str | None:
    """Return the version of the driver; None without one."""
    with nvml() as pynvml:
        return None if pynvml is None else str(pynvml.nvmlSystemGetDriverVersion())


def cuda_used_bytes(visible_device: str) -> int:
    """Return what the driver counts as used on one CUDA device; 0 without one."""
    with nvml() as pynvml:
        if pynvml is None or not visible_device:
            return 0
        return int(pynvml.nvmlDeviceGetMemoryInfo(nvml_handle(pynvml, visible_device)).used)


def cuda_processes(visible_device: str) -> tuple[tuple[int, int], ...]:
    """Return the process ids on one CUDA device, and the bytes that each holds.

    In a container these may be ids of the host, or missing.
    """
    with nvml() as pynvml:
        if pynvml is None or not visible_device:
            return ()
        try:
            found = pynvml.nvmlDeviceGetComputeRunningProcesses(nvml_handle(pynvml, visible_device))
        except pynvml.NVMLError:
            return ()
        return tuple((int(p.pid), int(p.usedGpuMemory or 0)) for p in found)


def cuda_driver() -> tuple[str, tuple[int, int]] | None:
    """Return the driver's version and the newest CUDA that it runs; None without a driver."""
    with nvml() as pynvml:
        if pynvml is None:
            return None
        cuda = int(pynvml.nvmlSystemGetCudaDriverVersion())
        return str(pynvml.nvmlSystemGetDriverVersion()), (cuda // 1000, cuda % 1000 // 10)


def process_name(pid: int) -> str:
    """Return the name of a process; `?` for one that is not visible from here."""
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "?"


def ray_processes() -> tuple[int, ...]:
    """Return the process ids of all Ray node managers on this machine."""
    found = []
    for process in psutil.process_iter(["name", "status"]):
        if process.info["name"] == "raylet" and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return tuple(found)


def nvml_handle(pynvml: Any, visible_device: str) -> Any:
    """Return NVML's handle of one entry of CUDA_VISIBLE_DEVICES."""
    if visible_device.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(visible_device))
    return pynvml.nvmlDeviceGetHandleByUUID(visible_device)


@contextmanager
def nvml() -> Iterator[Any]:
    """Open NVML; yields None without a driver."""
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
