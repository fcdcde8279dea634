import sys

import pytest

from autotune.pool import clocks
from autotune.pool.clocks import ClockMeter


class _FakeNvml:
    """NVML of one card, whose readings come from a list; nothing left is an error."""

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        """As NVML's."""

    def __init__(self, readings: list[tuple[int, int, int]], *, tells_power: bool = True) -> None:
        self._readings = readings
        self._tells_power = tells_power
        self.num_opened = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.num_opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.num_opened -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        assert (handle, kind) == (3, 1)
        if not self._readings:
            raise self.NVMLError
        return self._readings[0][0]

    def nvmlDeviceGetTemperature(self, _handle: int, _kind: int) -> int:  # noqa: N802
        return self._readings[0][1]

    def nvmlDeviceGetPowerUsage(self, _handle: int) -> int:  # noqa: N802
        if not self._tells_power:
            raise self.NVMLError
        return 650_000

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _handle: int) -> int:  # noqa: N802
        return self._readings.pop(0)[2]


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "_PAUSE_S", 0.0)


def _meter(monkeypatch: pytest.MonkeyPatch, nvml: _FakeNvml) -> ClockMeter:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return ClockMeter("3")


@pytest.mark.usefixtures("no_pause")
def test_samples_are_summed_up_and_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = [(1_980, 50, 0x1), (1_200, 60, 0x4 | 0x40), (1_900, 55, 0x4), (1_950, 40, 0x0)]
    nvml = _FakeNvml(readings)
    meter = _meter(monkeypatch, nvml)
    for _ in range(3):
        meter.sample()
    sampled = meter.take()
    assert sampled is not None
    assert (sampled.num_samples, sampled.sm_clock_mhz_min, sampled.sm_clock_mhz_median) == (
        3,
        1_200,
        1_900,
    )
    assert (sampled.temperature_c_max, sampled.power_w_max) == (60, 650.0)
    assert sampled.limits == ("sw power cap", "hw thermal")
    assert sampled.throttled == ("hw thermal",)
    assert meter.take() is None
    meter.sample()
    sampled = meter.take()
    assert sampled is not None
    assert (sampled.num_samples, sampled.limits) == (1, ())
    assert nvml.num_opened == 1  # once, and kept


@pytest.mark.usefixtures("no_pause")
def test_a_card_that_does_not_tell_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[tuple[int, int, int]] = []
    meter = _meter(monkeypatch, _FakeNvml(readings))
    meter.sample()
    readings.append((1_980, 50, 0))
    meter.sample()
    assert meter.take() is None


@pytest.mark.usefixtures("no_pause")
def test_power_may_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = _meter(monkeypatch, _FakeNvml([(1_980, 50, 0)], tells_power=False))
    meter.sample()
    sampled = meter.take()
    assert sampled is not None
    assert sampled.power_w_max is None


def test_a_young_sample_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "_PAUSE_S", 1e6)
    meter = _meter(monkeypatch, _FakeNvml([(1_980, 50, 0)] * 2))
    meter.sample()
    meter.sample()
    sampled = meter.take()
    assert sampled is not None
    assert sampled.num_samples == 1


def test_a_cpu_slot_has_no_clocks() -> None:
    meter = ClockMeter("")
    meter.sample()
    assert meter.take() is None
