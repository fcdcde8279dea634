"""How long a device takes, apart from the host that calls it."""

from typing import Any, cast

import pytest

from autotune.trial.device import Device
from autotune.trial.probe.timing import median_s

LAUNCH_S, KERNEL_S, BUSY_S = 50e-6, 10e-6, 3e-3


class Queue:
    """A device that works off what the host has called, each with its own time."""

    def __init__(self) -> None:
        self.host_s = self.device_s = 0.0

    def stamp(self) -> float:
        return self.device_s

    def seconds_between(self, start: float, end: float) -> float:
        return end - start

    def wait(self) -> None:
        self.host_s = self.device_s = max(self.host_s, self.device_s)

    def keep_busy(self) -> None:
        self.device_s = max(self.host_s, self.device_s) + BUSY_S

    def call(self) -> Any:
        self.host_s += LAUNCH_S
        self.device_s = max(self.host_s, self.device_s) + KERNEL_S


def test_what_the_host_takes_to_call_is_not_the_device_s_time() -> None:
    queue = Queue()
    seconds = median_s(queue.call, device=cast("Device", queue), num_repeats=10)
    assert seconds == pytest.approx(KERNEL_S)
