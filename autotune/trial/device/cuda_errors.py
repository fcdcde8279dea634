"""Classifies CUDA and NCCL errors: out of memory, or another fault of the device.

Pure: exceptions are identified by their type, by CUDA's error number where torch gives it, and only
then by the name of the status in their text.
"""

import re
from collections.abc import Callable

import torch
import torch.distributed as dist

from autotune.trial.failure_kind import FailureKind
from autotune.trial.oom_details import OomDetails

_MEMORY_ALLOCATION = 2
"""cudaErrorMemoryAllocation."""
_PLENTY_BYTES = 1 << 30
"""With this much free on the card, CUDA's "out of memory" is about pinned host memory."""
_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+) (bytes|KiB|MiB|GiB)")
_ASKED_OF_HOST = re.compile(r"you tried to allocate (\d+) bytes")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_LIBRARY_OUT_OF_MEMORY = re.compile(r"\w+_STATUS_ALLOC_FAILED")
_CUDA_ERROR = re.compile(r"CUDA (driver )?error: (?P<what>[^\n]*)")
_STATUS_NUMBER = {
    "out of memory": _MEMORY_ALLOCATION,
}
_NCCL_OWN_FAULT = (
    "ncclUnhandledCudaError",
    "ncclInvalidUsage",
    "ncclInvalidArgument",
    "No space left on device",
)
_ADVICE = (
    ("ECC", "the card's memory is faulty: remove it from the pool, see `nvidia-smi -q -d ECC`"),
    ("busy or unavailable", "another process uses the card exclusively: see `nvidia-smi`"),
    ("system not yet initialized", "the fabric manager does not run: start nvidia-fabricmanager"),
    ("no kernel image", "torch or an op was built for other cards: see `autotune doctor`"),
    ("No space left on device", "/dev/shm is full or small: see `autotune doctor`"),
    ("Duplicate GPU", "two ranks were given one card, which NCCL refuses"),
)


def read_oom(error: BaseException, *, free_bytes: Callable[[], int]) -> OomDetails | None:
    """Return the details of an out-of-memory error, or None.

    Args:
        error: any exception that torch's CUDA allocator did not raise.
        free_bytes: returns the driver's free memory of the card.
    """
    text = str(error)
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in text or "bad_alloc" in text:
        asked = _ASKED_OF_HOST.search(text)
        return OomDetails(
            kind=FailureKind.HOST_MEMORY, asked_bytes=int(asked.group(1)) if asked else None
        )
    if not isinstance(error, RuntimeError):
        return None
    if _LIBRARY_OUT_OF_MEMORY.search(text):
        return OomDetails(kind=FailureKind.DEVICE_MEMORY)
    if isinstance(error, dist.DistBackendError):
        return OomDetails(kind=FailureKind.DEVICE_MEMORY) if "out of memory" in text else None
    if _cuda_number(error) != _MEMORY_ALLOCATION:
        return None
    is_of_host = free_bytes() > _PLENTY_BYTES
    return OomDetails(kind=FailureKind.HOST_MEMORY if is_of_host else FailureKind.DEVICE_MEMORY)


def is_device_fault(error: BaseException) -> bool:
    """Return whether CUDA or NCCL failed in this rank for a reason other than memory.

    A lost connection between ranks is not one: it is a consequence.
    """
    if isinstance(error, dist.DistBackendError):
        return any(status in str(error) for status in _NCCL_OWN_FAULT)
    return isinstance(error, RuntimeError) and (
        isinstance(error, torch.AcceleratorError)
        or _CUDA_ERROR.search(str(error)) is not None
        or "CUDNN_STATUS_" in str(error)
    )


def advice_on(error: BaseException) -> str | None:
    """Return a suggestion for a device's fault; None without one."""
    text = str(error)
    return next((advice for sign, advice in _ADVICE if sign in text), None)


def requested_in_text(text: str) -> int:
    """Return the requested bytes in an out-of-memory message; 0 without them."""
    found = _ASKED.search(text)
    return int(float(found.group(1)) * _UNITS[found.group(2)]) if found else 0


def _cuda_number(error: BaseException) -> int | None:
    """Return CUDA's number of an error; torch before 2.8 gives only the text."""
    number = getattr(error, "error_code", None)
    if isinstance(number, int):
        return number
    found = _CUDA_ERROR.search(str(error))
    return _STATUS_NUMBER.get(found.group("what").strip()) if found else None
