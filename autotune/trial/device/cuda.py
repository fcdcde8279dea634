"""A CUDA device: torch's caching allocator under a memory fraction."""

import resource

import torch

from autotune.outcome import Phase, PhaseMemory


class CudaDevice:
    """The visible device of this rank."""

    backend = "nccl"

    def __init__(self, *, ceiling_bytes: int, local_rank: int, num_threads: int) -> None:
        # The parent imported with one thread; an offloaded optimizer steps on all that are ours.
        torch.set_num_threads(num_threads)
        self.torch_device = f"cuda:{local_rank}"
        self._device = torch.device(self.torch_device)
        self._ceiling_bytes = ceiling_bytes
        torch.cuda.set_device(self._device)
        # What the driver counts for this card before this rank allocates: its own CUDA context.
        self._outside_bytes = self._driver_bytes()

    def _driver_bytes(self) -> int:
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free

    def enforce_ceiling(self) -> None:
        total = torch.cuda.mem_get_info(self._device)[1]
        fraction = max((self._ceiling_bytes - self._outside_bytes) / total, 0.0)
        torch.cuda.set_per_process_memory_fraction(min(fraction, 1.0), self._device)

    def lift_ceiling(self) -> None:
        torch.cuda.set_per_process_memory_fraction(1.0, self._device)

    def stamp(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds_between(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(start.elapsed_time(end)) / 1e3

    def wait(self) -> None:
        torch.cuda.synchronize(self._device)

    def take_peak(self, phase: Phase) -> PhaseMemory:
        allocated = torch.cuda.max_memory_allocated(self._device)
        reserved = torch.cuda.max_memory_reserved(self._device)
        outside = self._driver_bytes() - torch.cuda.memory_reserved(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        return PhaseMemory(
            phase=phase,
            used_bytes=reserved + outside,
            allocated_bytes=allocated,
            reserved_bytes=reserved,
        )

    def host_bytes(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def num_alloc_retries(self) -> int:
        return int(torch.cuda.memory_stats(self._device).get("num_alloc_retries", 0))

    def bytes_short_of(self, error: BaseException) -> int | None:
        if not isinstance(error, torch.cuda.OutOfMemoryError):
            return None
        held = torch.cuda.memory_allocated(self._device) + self._outside_bytes
        return max(held, self._ceiling_bytes + 1)
