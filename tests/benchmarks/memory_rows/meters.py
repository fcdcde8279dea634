"""What a rank reads its memory from."""

import time
from typing import Protocol

from autotune.job.ceiling import GIB


class Meter(Protocol):
    """The device's memory, in bytes."""

    name: str

    def allocated(self) -> int: ...
    def peak_allocated(self) -> int: ...
    def reserved(self) -> int: ...
    def peak_reserved(self) -> int: ...
    def reset(self) -> None: ...
    def num_retries(self) -> int: ...
    def driver_used(self) -> int: ...
    def wait(self) -> None: ...
    def cap(self, num_bytes: int) -> None: ...


class CudaMeter:
    """The first visible CUDA device."""

    name = "cuda:0"

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda
        self._cuda.set_device(0)
        # The row before has ended, but its memory may come back a little later.
        deadline = time.monotonic() + 5
        while self.driver_used() > 3 * GIB and time.monotonic() < deadline:
            time.sleep(0.1)

    def allocated(self) -> int:
        return int(self._cuda.memory_allocated(0))

    def peak_allocated(self) -> int:
        return int(self._cuda.max_memory_allocated(0))

    def reserved(self) -> int:
        return int(self._cuda.memory_reserved(0))

    def peak_reserved(self) -> int:
        return int(self._cuda.max_memory_reserved(0))

    def reset(self) -> None:
        self._cuda.reset_peak_memory_stats(0)

    def num_retries(self) -> int:
        return int(self._cuda.memory_stats(0).get("num_alloc_retries", 0))

    def driver_used(self) -> int:
        free, total = self._cuda.mem_get_info(0)
        return int(total - free)

    def wait(self) -> None:
        self._cuda.synchronize(0)

    def cap(self, num_bytes: int) -> None:
        total = self._cuda.mem_get_info(0)[1]
        self._cuda.set_per_process_memory_fraction(min(max(num_bytes / total, 0.0), 1.0), 0)


class CpuMeter:
    """Nothing to measure: for debugging this script."""

    name = "cpu"

    def allocated(self) -> int:
        return 0

    peak_allocated = reserved = peak_reserved = num_retries = driver_used = allocated

    def reset(self) -> None:
        """Nothing to reset."""

    wait = reset

    def cap(self, num_bytes: int) -> None:
        """No limit is set."""
