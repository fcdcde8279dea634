"""A CPU rank as a device: its memory is what it adds to its parent process. Linux only.

The kernel enforces the ceiling (`RLIMIT_DATA`), so that torch's allocator fails as it would on a
full GPU. The limit counts reserved memory, the peak counts touched memory: as on a GPU, a trial
whose buffers do not fit is stopped even if it does not fill them.
"""

import re
import resource
import time
from pathlib import Path

import torch

from autotune.study.outcome import Phase, PhaseMemory
from autotune.trial.failure_kind import FailureKind
from autotune.trial.oom_details import OomDetails

_STATUS = Path("/proc/self/status")
_NO_THREAD = "Resource temporarily unavailable"
_STACK_BYTES = 8 << 20
_ASKED = re.compile(r"you tried to allocate (\d+) bytes")


class CpuDevice:
    """The process."""

    torch_device = "cpu"
    backend = "gloo"

    def __init__(self, *, ceiling_bytes: int, num_threads: int) -> None:
        torch.set_num_threads(num_threads)
        self._ceiling_bytes = ceiling_bytes
        self._data_at_fork = _status_bytes("VmData")
        self._resident_at_fork = _status_bytes("VmRSS")
        self._peak_host_bytes = 0

    def enforce_ceiling(self) -> None:
        limit = self._data_at_fork + self._ceiling_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))

    def lift_ceiling(self) -> None:
        unlimited = resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_DATA, (unlimited, unlimited))

    def stamp(self) -> float:
        return time.perf_counter()

    def seconds_between(self, start: float, end: float) -> float:
        return end - start

    def wait(self) -> None:
        """CPU operations are done when they return."""

    def keep_busy(self) -> None:
        """The host is the device."""

    def take_peak(self, phase: Phase) -> PhaseMemory:
        peak = _status_bytes("VmHWM")
        self._peak_host_bytes = max(self._peak_host_bytes, peak)
        # "5" resets VmHWM to what is resident now (proc_pid_clear_refs(5)).
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return PhaseMemory(phase=phase, used_bytes=max(peak - self._resident_at_fork, 0))

    def host_bytes(self) -> int:
        return max(self._peak_host_bytes, _status_bytes("VmHWM"))

    def num_alloc_retries(self) -> int:
        return 0

    def oom_of(self, error: BaseException) -> OomDetails | None:
        text = str(error)
        asked = _ASKED.search(text)
        held = _status_bytes("VmData") - self._data_at_fork
        # torch raises plain RuntimeErrors here; only the text identifies them.
        out_of_memory = (
            isinstance(error, MemoryError)
            or (asked is not None and "DefaultCPUAllocator" in text)
            or "std::bad_alloc" in text
            # A thread's stack counts too; without room for it, starting the thread fails.
            or (_NO_THREAD in text and self._ceiling_bytes - held < 2 * _STACK_BYTES)
        )
        if not out_of_memory:
            return None
        asked_bytes = int(asked.group(1)) if asked else None
        # Where the text has no size, the request was larger than the free memory.
        needed = max(held + (asked_bytes or 0), self._ceiling_bytes + 1)
        return OomDetails(
            kind=FailureKind.MEMORY,
            asked_bytes=asked_bytes,
            short_bytes=needed - self._ceiling_bytes if asked_bytes else None,
            needed_bytes=needed,
        )


def _status_bytes(field: str) -> int:
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS}: no {field}")
