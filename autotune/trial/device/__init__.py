"""The kinds of device a rank runs on: how it is claimed, timed, and its memory read."""

from typing import Any, Protocol

from autotune.study.outcome import Phase, PhaseMemory
from autotune.trial.oom_details import OomDetails
from autotune.trial.probe.spec import ProbeSpec
from autotune.trial.spec import Place, TrialSpec


class Device(Protocol):
    """A rank's device. One instance per rank and trial."""

    torch_device: str
    """As torch spells it: `cpu`, `cuda:0`."""
    backend: str
    """Of torch.distributed: gloo or nccl."""

    def enforce_ceiling(self) -> None:
        """Make allocations over the ceiling fail from here on.

        Called again after every phase: what a rank holds outside its allocator grows.
        """

    def lift_ceiling(self) -> None:
        """Undo `enforce_ceiling`: the report of a failed trial must not run out of memory."""

    def stamp(self) -> Any:
        """Return a timestamp of the device."""

    def seconds_between(self, start: Any, end: Any) -> float:
        """Return seconds between two stamps; call `wait` first."""

    def wait(self) -> None:
        """Wait until the device has completed all queued work."""

    def keep_busy(self) -> None:
        """Keep the device busy for a few milliseconds, so that the host gets ahead of it."""

    def take_peak(self, phase: Phase) -> PhaseMemory:
        """Return the peak memory since the last call, and reset it."""

    def host_bytes(self) -> int:
        """Return the peak resident host memory of this rank so far."""

    def num_alloc_retries(self) -> int:
        """Return how often the allocator has freed its cache so far."""

    def oom_of(self, error: BaseException) -> OomDetails | None:
        """Return how much memory was missing, and where; None if `error` is not about memory."""


def open_device(spec: TrialSpec | ProbeSpec, place: Place) -> Device:
    """Return the device of this rank.

    Raises:
        ValueError: an unknown kind, which the caller must refuse.
    """
    if spec.device_kind == "cpu":
        from autotune.trial.device.cpu import CpuDevice

        return CpuDevice(ceiling_bytes=spec.enforced_bytes, num_threads=spec.num_threads)
    if spec.device_kind == "cuda":
        from autotune.trial.device.cuda import CudaDevice

        return CudaDevice(
            ceiling_bytes=spec.enforced_bytes,
            local_rank=place.local_rank,
            num_threads=spec.num_threads,
        )
    raise ValueError(f"device_kind={spec.device_kind!r}: must be cpu or cuda")
