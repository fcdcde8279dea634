"""Where a job runs: devices, nodes, ceiling and links."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autotune.errors import HardwareError
from autotune.job.ceiling import parse_bytes, parse_ceiling
from autotune.job.cpu_threads import CpuThreads, assumed_cpu_threads
from autotune.job.device import Device, catalogue, find_device, find_gpu, load_devices
from autotune.job.job import Job

DEFAULT_CEILING = "90%"
DEFAULT_GPUS_PER_NODE = 8
_BOX_SHARE = 0.1
"""The most by which a driver's memory is below the vendor's number: 24 GB is 22.03 GiB."""
_SIZE = re.compile(r"-[0-9]+gb")
"""The size in the name of a device that is sold in several."""
_ANY_DEVICE_BYTES = 2**40
_BARE = re.compile(r"[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a job runs; None is unknown."""

    gpus: int | None
    """Devices of the whole job, one rank each."""
    ranks_per_node: int | None
    device: Device | None
    """The device of every rank."""
    ceiling_bytes: int | None
    """The most a rank may use on its device, as the driver sees it."""
    ceiling_is_given: bool
    """Whether the user chose the ceiling; the default is 90 % of the device."""
    host_bytes: int | None
    """Memory of one node."""
    link: str | None
    """Network between nodes; None is the catalogue's for the device."""
    probe: Mapping[str, Any] | None
    """The measurements of `autotune probe` on the pool."""
    cpu_threads: CpuThreads
    """CPU threads of a rank, as its launcher sets them on such a node."""

    @property
    def limit_bytes(self) -> int | None:
        """The most a rank may use: the ceiling if the user chose one, else the whole device."""
        if self.ceiling_is_given or self.device is None:
            return self.ceiling_bytes
        return self.device.memory_bytes

    def with_gpus(self, gpus: int, *, ranks_per_node: int) -> "Site":
        """Return the same site with another number of devices."""
        return replace(self, gpus=gpus, ranks_per_node=min(ranks_per_node, gpus))


def resolve_site(job: Job, *, probe: Mapping[str, Any] | None = None) -> Site:
    """Return the site of a job.

    Args:
        job: the merged options.
        probe: the content of its probe file.

    Raises:
        HardwareError: a device or a size is unknown, or the ceiling is above the device.
    """
    device = device_of(job)
    ceiling = job.memory_ceiling or DEFAULT_CEILING
    return Site(
        gpus=job.gpus,
        ranks_per_node=ranks_per_node(job),
        device=device,
        ceiling_bytes=_ceiling_bytes(ceiling, device),
        ceiling_is_given=job.memory_ceiling is not None,
        host_bytes=(
            None if job.host_memory is None else size_bytes(job.host_memory, where="--host-memory")
        ),
        link=job.link,
        probe=probe,
        cpu_threads=assumed_cpu_threads(
            local_ranks=ranks_per_node(job) or 1,
            given=job.cpu_threads,
            launcher=None if job.launcher is None else job.launcher.starter,
        ),
    )


def ranks_per_node(job: Job) -> int | None:
    """Return the ranks that share a node; None if the number of devices is unknown."""
    if job.gpus is None:
        return None
    if job.nodes is not None:
        return max(job.gpus // job.nodes, 1)
    return min(job.gpus_per_node or DEFAULT_GPUS_PER_NODE, job.gpus)


def device_of(job: Job) -> Device | None:
    """Return the device of every rank; None if neither type nor memory is known.

    Of a type that is sold in several sizes, it is the one with the given memory. Of a type that the
    catalogue lacks, only the memory is needed.

    Raises:
        HardwareError: an unknown device without its memory, or an unreadable size.
    """
    memory = job.gpu_memory
    memory_bytes = None if memory is None else size_bytes(memory, where="--gpu-memory")
    extra = load_devices(job.devices) if job.devices else ()
    if job.gpu_type is not None:
        try:
            device = find_gpu(job.gpu_type, extra=extra)
        except HardwareError as error:
            if memory_bytes is None:
                raise HardwareError(f"{error}, or give its --gpu-memory") from error
        else:
            return device if memory_bytes is None else _of_size(device, memory_bytes)
    if memory_bytes is None:
        return None
    # Its speed is unknown; messages print its name.
    known = find_device("h100-80gb")
    return replace(known, name=job.gpu_type or "GPU", memory_bytes=memory_bytes, aliases=())


def _of_size(device: Device, memory_bytes: int) -> Device:
    """Return the device with a given memory.

    The vendor's number is slightly more than the driver gives: if the catalogue has that size of
    the device, its memory, the driver's, is used.
    """
    family = _SIZE.sub("", device.name)
    for known in (device, *catalogue()):
        same_kind = _SIZE.sub("", known.name) == family
        if same_kind and 0 <= memory_bytes - known.memory_bytes < _BOX_SHARE * memory_bytes:
            return known
    return replace(device, memory_bytes=memory_bytes)


def size_bytes(text: str, *, where: str) -> int:
    """Read a size; a number alone is GiB.

    Raises:
        HardwareError: unreadable, or not positive.
    """
    stripped = text.strip()
    return parse_bytes(f"{stripped}GiB" if _BARE.fullmatch(stripped) else text, where=where)


def _ceiling_bytes(ceiling: str, device: Device | None) -> int | None:
    """Return the ceiling on a device; without a device it is only checked."""
    if device is not None:
        return parse_ceiling(ceiling, device_bytes=device.memory_bytes)
    if not ceiling.strip().endswith("%"):
        return parse_bytes(ceiling, where="--memory-ceiling")
    # Without a device only the form of a share can be checked.
    parse_ceiling(ceiling, device_bytes=_ANY_DEVICE_BYTES)
    return None
