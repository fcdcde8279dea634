"""A CUDA device: torch's caching allocator under a memory fraction.

What a rank holds outside that allocator (context, kernels' code, NCCL's buffers) counts against the
ceiling too, and grows at the start of a trial. The fraction is therefore set again after every
phase; until the end of the first step it reserves memory for kernels that are loaded later.
"""

import resource
from collections.abc import Mapping

import torch

from autotune.study.outcome import Phase, PhaseMemory
from autotune.trial.device.cuda_errors import read_oom, requested_in_text
from autotune.trial.oom_details import OomDetails, Refusal

COMING_BYTES: Mapping[Phase, int] = {
    Phase.BUILD: 256 << 20,
    Phase.INIT: 96 << 20,
    Phase.FIRST_STEP: 160 << 20,
    Phase.STEADY: 32 << 20,
}
"""The largest growth of a rank's memory outside the allocator in a phase: kernels are loaded when
they are first needed. In 72 trials of 1.3B and 7B models on an H200 it grew by 0 to 90 MiB in the
initialisation, 148 to 152 in the first step, and never later."""

_BUSY_CYCLES = 6_000_000
"""Three to five milliseconds at the clocks of data-centre GPUs: several times what the host needs
to queue ten collectives."""


class CudaDevice:
    """The visible device of this rank. No other rank uses it."""

    backend = "nccl"

    def __init__(self, *, ceiling_bytes: int, local_rank: int, num_threads: int) -> None:
        # The parent imported with one thread; an offloaded optimizer uses all of this rank's.
        torch.set_num_threads(num_threads)
        self.torch_device = f"cuda:{local_rank}"
        self._device = torch.device(self.torch_device)
        self._ceiling_bytes = ceiling_bytes
        self._refusal: Refusal | None = None
        self._phases_done: set[Phase] = set()
        torch.cuda.set_device(self._device)
        self._allowed_bytes = torch.cuda.mem_get_info(self._device)[1]
        """What the allocator may reserve: the whole card until a ceiling is enforced."""
        self._watch_refusals()

    def enforce_ceiling(self) -> None:
        phase = next((p for p in Phase if p not in self._phases_done), Phase.STEADY)
        coming_bytes = COMING_BYTES[phase]
        total = torch.cuda.mem_get_info(self._device)[1]
        allowed = self._ceiling_bytes - self._outside_bytes() - coming_bytes
        self._allowed_bytes = min(max(allowed, 0), total)
        torch.cuda.set_per_process_memory_fraction(self._allowed_bytes / total, self._device)
        if torch.cuda.memory_reserved(self._device) > self._allowed_bytes:
            # Cache from earlier phases: the allocator would free it when it needs memory, which
            # must not count as a retry of the steps.
            torch.cuda.empty_cache()

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

    def keep_busy(self) -> None:
        torch.cuda._sleep(_BUSY_CYCLES)  # type: ignore[no-untyped-call]

    def take_peak(self, phase: Phase) -> PhaseMemory:
        allocated = torch.cuda.max_memory_allocated(self._device)
        reserved = torch.cuda.max_memory_reserved(self._device)
        outside = self._outside_bytes()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._phases_done.add(phase)
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

    def oom_of(self, error: BaseException) -> OomDetails | None:
        if isinstance(error, torch.OutOfMemoryError):
            refusal = self._refusal or self._refusal_from_text(error)
            return refusal.oom_details(
                ceiling_bytes=self._ceiling_bytes, outside_bytes=self._outside_bytes()
            )
        return read_oom(error, free_bytes=lambda: torch.cuda.mem_get_info(self._device)[0])

    def _outside_bytes(self) -> int:
        """Return this rank's memory outside the allocator: no other process uses the card."""
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free - torch.cuda.memory_reserved(self._device)

    def _watch_refusals(self) -> None:
        """Make the allocator report a failed request at the time of the failure.

        When the exception is caught, the unwound frames have freed memory already, and the
        exception's text is rounded.
        """
        attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is not None:
            attach(self._note_refusal)

    def _note_refusal(
        self, _device: int, asked_bytes: int, _allowed_bytes: int, free_bytes: int
    ) -> None:
        self._refusal = Refusal(
            asked_bytes=asked_bytes,
            reserved_bytes=torch.cuda.memory_reserved(self._device),
            allowed_bytes=self._allowed_bytes,
            free_bytes=free_bytes,
        )

    def _refusal_from_text(self, error: BaseException) -> Refusal:
        """Return the same from the exception's text, for a torch without this observer."""
        return Refusal(
            asked_bytes=requested_in_text(str(error)),
            reserved_bytes=torch.cuda.memory_reserved(self._device),
            allowed_bytes=self._allowed_bytes,
            free_bytes=torch.cuda.mem_get_info(self._device)[0],
        )
