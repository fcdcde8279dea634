"""How a job sits in its device and its host, at both ends of the model's error."""

from dataclasses import dataclass

from autotune.gate.fit.job import Job
from autotune.predict.memory import error_margins
from autotune.predict.memory.estimate import HostEstimate, MemoryEstimate
from autotune.predict.memory.verdict import Room
from autotune.predict.program.items import Part
from autotune.predict.training_job import ModelSettings, Training

ACTIVATION_ITEMS = ("activations", "activation_gradients", "logits")
OUTSIDE_LEAST = 0.5
"""Share of what lies outside the allocator that is certain: it was measured on one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A job's estimate and how it sits."""

    training: Training
    settings: ModelSettings
    estimate: MemoryEstimate
    low_bytes: int
    """What a rank surely needs of the device."""
    device: Room
    host: Room

    @property
    def needed_bytes(self) -> int:
        """What it needs if the prediction is right, fragmentation avoided."""
        return self.estimate.device.peak_allocated_bytes + self.estimate.device.outside_bytes

    @property
    def high_bytes(self) -> int:
        """The same at the high end of the model's error."""
        return self.estimate.device.needed_bytes


def judge_estimate(job: Job, settings: ModelSettings) -> Judged:
    """Predict the job and judge device and host.

    What counts is whether it runs out of memory: one whose allocator has to give back cache in
    every step is slow, but it runs.
    """
    training = job.training(settings)
    estimate = job.predict(training)
    low_bytes = _low_end_bytes(training, estimate, unsure=job.unsure)
    return Judged(
        training=training,
        settings=settings,
        estimate=estimate,
        low_bytes=low_bytes,
        device=_device_room(estimate, low_bytes),
        host=_host_room(estimate.host),
    )


def _low_end_bytes(training: Training, estimate: MemoryEstimate, *, unsure: float) -> int:
    """Return what is needed at the low end of the model's error.

    Fragmentation does not count: users avoid it with expandable segments. Every part of the step
    has its own low end, since the peak may move.
    """
    device = estimate.device
    peaks = [(device.peak_allocated_bytes, device.items)]
    peaks += [(p.allocated_bytes, p.items) for p in device.parts if p.part is not Part.INIT]
    least = max(
        allocated - unsure * sum(items.get(name, 0) for name in ACTIVATION_ITEMS)
        for allocated, items in peaks
    )
    return round(
        least * (1 - error_margins.margin(training)) + OUTSIDE_LEAST * device.outside_bytes
    )


def _device_room(estimate: MemoryEstimate, low_bytes: int) -> Room:
    if estimate.device.runs is not False:
        return Room.FITS
    assert estimate.device.ceiling_bytes is not None
    return Room.TOO_LARGE if low_bytes > estimate.device.ceiling_bytes else Room.TIGHT


def _host_room(host: HostEstimate) -> Room:
    if host.fits is not False:
        return Room.FITS
    assert host.ceiling_bytes is not None
    over = host.total_bytes * (1 - host.margin) > host.ceiling_bytes
    return Room.TOO_LARGE if over else Room.TIGHT
