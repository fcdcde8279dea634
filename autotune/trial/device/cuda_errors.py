"""CUDA's and NCCL's errors: which of them mean that memory ran out, and what the others mean.

Pure: exceptions are told by their type, by CUDA's error number where torch gives it, and only then
by the name of the status in their text.
"""

import re
from collections.abc import Callable

import torch
import torch.distributed as dist

from autotune.trial.failure_kind import FailureKind
from autotune.trial.oom_details import Shortage

_MEMORY_ALLOCATION = 2
"""cudaErrorMemoryAllocation."""
_PLENTY_BYTES = 1 << 30
"""With so much free on the card, CUDA's own "out of memory" is about the host's: pinned memory."""
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
    ("ECC", "the card's memory is broken: take it out of the pool, see `nvidia-smi -q -d ECC`"),
    ("busy or unavailable", "another process has the card for itself: see `nvidia-smi`"),
    ("system not yet initialized", "the fabric manager does not run: start nvidia-fabricmanager"),
    ("no kernel image", "torch or an op was built for other cards: see `autotune doctor`"),
    ("No space left on device", "/dev/shm is full or small: see `autotune doctor`"),
    ("Duplicate GPU", "two ranks were given one card, which NCCL refuses"),
)


def read_shortage(error: BaseException, *, free_bytes: Callable[[], int]) -> Shortage | None:
    """Return the shortage behind an error that torch's CUDA allocator did not raise, or None.

    Args:
        error: any exception.
        free_bytes: asks the driver what is free on the card.
    """
    text = str(error)
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in text or "bad_alloc" in text:
        asked = _ASKED_OF_HOST.search(text)
        return Shortage(
            kind=FailureKind.HOST_MEMORY, asked_bytes=int(asked.group(1)) if asked else None
        )
    if not isinstance(error, RuntimeError):
        return None
    if _LIBRARY_OUT_OF_MEMORY.search(text):
        return Shortage(kind=FailureKind.DEVICE_MEMORY)
    if isinstance(error, dist.DistBackendError):
        return Shortage(kind=FailureKind.DEVICE_MEMORY) if "out of memory" in text else None
    if _cuda_number(error) != _MEMORY_ALLOCATION:
        return None
    is_of_host = free_bytes() > _PLENTY_BYTES
    return Shortage(kind=FailureKind.HOST_MEMORY if is_of_host else FailureKind.DEVICE_MEMORY)


def is_device_fault(error: BaseException) -> bool:
    """Return whether CUDA or NCCL failed in this rank, for another reason than memory.

    A lost connection between ranks is none: it is a consequence.
    """
    if isinstance(error, dist.DistBackendError):
        return any(status in str(error) for status in _NCCL_OWN_FAULT)
    return isinstance(error, RuntimeError) and (
        isinstance(error, torch.AcceleratorError)
        or _CUDA_ERROR.search(str(error)) is not None
        or "CUDNN_STATUS_" in str(error)
    )


def advice_on(error: BaseException) -> str | None:
    """Return what a user can do about a device's fault, where that is known."""
    text = str(error)
    return next((advice for sign, advice in _ADVICE if sign in text), None)


def asked_in_text(text: str) -> int:
    """Return the bytes that an out-of-memory message says were asked for; 0 if it does not."""
    found = _ASKED.search(text)
    return int(float(found.group(1)) * _UNITS[found.group(2)]) if found else 0


def _cuda_number(error: BaseException) -> int | None:
    """Return CUDA's number of an error; torch before 2.8 gives only the text."""
    number = getattr(error, "error_code", None)
    if isinstance(number, int):
        return number
    found = _CUDA_ERROR.search(str(error))
    return _STATUS_NUMBER.get(found.group("what").strip()) if found else None
