"""Clocks, heat and power of one CUDA device while a rank runs on it, as NVML reports them.

Read in the slot and never in the rank or its preloaded parent: a driver may start a thread for
NVML, and a fork of a process with threads hangs.
"""

import contextlib
import statistics
import time
from dataclasses import dataclass
from typing import Any

from autotune.pool import machine
from autotune.study.outcome import DeviceClocks

_PAUSE_S = 0.1
"""Between two samples; one costs the driver well under a millisecond."""

# nvml.h, nvmlClocksEventReason*; idle is not a limit.
_LIMITS = {
    0x002: "application clocks",
    0x004: "sw power cap",
    0x008: "hw slowdown",
    0x010: "sync boost",
    0x020: "sw thermal",
    0x040: "hw thermal",
    0x080: "hw power brake",
    0x100: "display clocks",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    sm_clock_mhz: int
    temperature_c: int
    power_w: float | None
    limits: int


class ClockMeter:
    """Samples one device; no samples without a device or without its driver's support."""

    def __init__(self, visible_device: str) -> None:
        self._device = visible_device
        self._samples: list[_Sample] = []
        self._next_at = 0.0
        self._nvml: Any = None
        self._stack = contextlib.ExitStack()

    def sample(self) -> None:
        """Take a sample, unless the last one is recent."""
        if not self._device or time.monotonic() < self._next_at:
            return
        sample = self._read()
        self._next_at = time.monotonic() + _PAUSE_S
        if sample is None:
            self._device = ""  # do not try again
        else:
            self._samples.append(sample)

    def take(self) -> DeviceClocks | None:
        """Return what was sampled since the last call, and start over; None without a sample."""
        samples, self._samples = self._samples, []
        if not samples:
            return None
        powers = [s.power_w for s in samples if s.power_w is not None]
        seen = 0
        for sample in samples:
            seen |= sample.limits
        return DeviceClocks(
            num_samples=len(samples),
            sm_clock_mhz_min=min(s.sm_clock_mhz for s in samples),
            sm_clock_mhz_median=round(statistics.median(s.sm_clock_mhz for s in samples)),
            temperature_c_max=max(s.temperature_c for s in samples),
            power_w_max=max(powers) if powers else None,
            limits=tuple(name for bit, name in _LIMITS.items() if seen & bit),
        )

    def _read(self) -> _Sample | None:
        if self._nvml is None:
            # Kept open: opening takes longer than all samples of a trial.
            self._nvml = self._stack.enter_context(machine.nvml())
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            handle = machine.nvml_handle(nvml, self._device)
            return _Sample(
                sm_clock_mhz=int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
                temperature_c=int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
                power_w=_power_w(nvml, handle),
                limits=int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            )
        except nvml.NVMLError:
            return None


def _power_w(nvml: Any, handle: Any) -> float | None:
    try:
        return float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1e3
    except nvml.NVMLError:
        return None  # a MIG instance does not report power
