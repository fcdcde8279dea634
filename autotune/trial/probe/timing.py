"""Times a step that all ranks of a group do together."""

import itertools
import statistics
import time
from collections.abc import Callable

import torch

from autotune.trial.device import Device

_NUM_WARM_UPS = 3


def median_s(step: Callable[[], object], *, device: Device, num_repeats: int) -> float:
    """Return the median seconds of a step on the device's clock, after warm-up."""
    for _ in range(_NUM_WARM_UPS):
        step()
    device.wait()
    # All are queued while the device is busy: a step of a few microseconds would otherwise take as
    # long as the host's call. The first may also wait for other ranks; the median does not.
    device.keep_busy()
    stamps = [device.stamp()]
    for _ in range(num_repeats):
        step()
        stamps.append(device.stamp())
    device.wait()
    return statistics.median(itertools.starmap(device.seconds_between, itertools.pairwise(stamps)))


def median_host_s(step: Callable[[], object], *, num_repeats: int) -> float:
    """Return the median seconds of a step that runs on the host, after one for warm-up."""
    step()
    times = []
    for _ in range(num_repeats):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def whole(num_bytes: int, *, parts: int, device: str) -> torch.Tensor:
    """Return a bf16 tensor of about that many bytes that divides into equal parts."""
    elements = max(num_bytes // 2 // parts, 1) * parts
    return torch.zeros(elements, dtype=torch.bfloat16, device=device)
