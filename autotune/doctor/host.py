"""Memory, disks and limits of the host."""

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autotune.doctor.check import Check, fail, ok, warn
from autotune.job.ceiling import GIB, format_gib
from autotune.pool import machine

_MIB = 1 << 20
_SHM = Path("/dev/shm")
_SHM_NEEDED_BYTES = 128 * _MIB
"""NCCL needs about 10 MiB for each connection that goes through host memory: 64 MiB, Docker's
default, is too little for eight ranks."""
_SHM_WANTED_BYTES = 1 * GIB
_MEMORY_NEEDED_BYTES = 2 * GIB
_MEMORY_WANTED_BYTES = 8 * GIB
_FILES_NEEDED, _FILES_WANTED = 1_024, 8_192


def check_shared_memory(free_bytes: int) -> Check:
    """/dev/shm has room for NCCL's and Ray's segments."""
    found = f"{format_gib(free_bytes)} free in {_SHM}"
    cure = "start the container with --ipc=host or --shm-size=8g, or remount it larger"
    if free_bytes < _SHM_NEEDED_BYTES:
        return fail("shared memory", f"{found}: may be too little for NCCL", cure)
    if free_bytes < _SHM_WANTED_BYTES:
        return warn("shared memory", f"{found}: tight with eight ranks", cure)
    return ok("shared memory", found)


def check_memory(limit_bytes: int) -> Check:
    """The memory limit of the control group is enough for ranks."""
    found = f"{format_gib(limit_bytes)} for all ranks of this machine"
    cure = "raise the memory limit of the container or job"
    if limit_bytes < _MEMORY_NEEDED_BYTES:
        return fail("host memory", f"{found}: Ray and one rank need more", cure)
    if limit_bytes < _MEMORY_WANTED_BYTES:
        return warn(
            "host memory", f"{found}: too little for more than one rank, or for offload", cure
        )
    return ok("host memory", found)


def check_open_files(soft: int, hard: int) -> Check:
    """Enough files may be open; Ray raises the soft limit to the hard one."""
    most = hard if hard != resource.RLIM_INFINITY else 1 << 30
    found = f"{soft} open files, {'unlimited' if most == 1 << 30 else most} at most"
    cure = "raise it: ulimit -n 65536"
    if most < _FILES_NEEDED:
        return fail("open files", f"{found}: Ray needs more", cure)
    if most < _FILES_WANTED:
        return warn("open files", f"{found}: too little for a large pool", cure)
    return ok("open files", found)


def check_disk(name: str, folder: Path, *, needed_bytes: int, wanted_bytes: int) -> Check:
    """A folder can be written to and has room.

    Args:
        name: of the check.
        folder: it need not exist.
        needed_bytes: with less a run fails.
        wanted_bytes: with less it may fail.
    """
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    if not os.access(existing, os.W_OK):
        return fail(name, f"{folder} cannot be written to", f"change the permissions of {existing}")
    free_bytes = shutil.disk_usage(existing).free
    found = f"{format_gib(free_bytes)} free for {folder}"
    if free_bytes < needed_bytes:
        return fail(name, f"{found}; needs {format_gib(needed_bytes)}", f"free some on {existing}")
    if free_bytes < wanted_bytes:
        return warn(name, f"{found}: too little for long runs", f"free some on {existing}")
    return ok(name, found)


def check_host(extensions: str | None) -> Iterator[Check]:
    """Check this host.

    Args:
        extensions: the folder of the ops that are compiled at first use; None if unknown.
    """
    yield check_memory(machine.host_memory_bytes())
    yield check_shared_memory(shutil.disk_usage(_SHM).free)
    yield check_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))
    small, large = 100 * _MIB, GIB
    yield check_disk("disk: studies", Path("studies"), needed_bytes=small, wanted_bytes=large)
    temporary = Path(tempfile.gettempdir())
    yield check_disk("disk: temporary", temporary, needed_bytes=large, wanted_bytes=5 * GIB)
    if extensions is not None:
        yield check_disk(
            "disk: extensions", Path(extensions), needed_bytes=small, wanted_bytes=large
        )
