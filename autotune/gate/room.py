"""How a job sits in its device and its host, at both ends of the model's error."""

from dataclasses import dataclass

from autotune.gate.job import Job
from autotune.predict.memory import coverage
from autotune.predict.memory.bill import Bill, HostBill
from autotune.predict.memory.items import Part
from autotune.predict.memory.verdict import Room
from autotune.predict.training import ModelSettings, Training

ACTIVATION_ITEMS = ("activations", "activation_gradients", "logits")
OUTSIDE_LEAST = 0.5
"""Share of what lies outside the allocator that is certain: it was measured on one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A job's bill and how it sits."""

    training: Training
    settings: ModelSettings
    bill: Bill
    low_bytes: int
    """What a rank surely needs of the device."""
    device: Room
    host: Room

    @property
    def needed_bytes(self) -> int:
        """What it needs if the prediction is right, fragmentation avoided."""
        return self.bill.device.peak_allocated_bytes + self.bill.device.outside_bytes

    @property
    def high_bytes(self) -> int:
        """The same at the high end of the model's error."""
        return self.bill.device.needed_bytes


def judge_bill(job: Job, settings: ModelSettings) -> Judged:
    """Predict the job and judge device and host.

    What counts is whether it runs out of memory: one whose allocator has to give back cache in
    every step is slow, but it runs.
    """
    training = job.training(settings)
    bill = job.predict(training)
    low_bytes = _low_end_bytes(training, bill, unsure=job.unsure)
    return Judged(
        training=training,
        settings=settings,
        bill=bill,
        low_bytes=low_bytes,
        device=_device_room(bill, low_bytes),
        host=_host_room(bill.host),
    )


def _low_end_bytes(training: Training, bill: Bill, *, unsure: float) -> int:
    """Return what is needed at the low end of the model's error.

    Fragmentation does not count: users avoid it with expandable segments. Every part of the step
    has its own low end, since the peak may move.
    """
    device = bill.device
    peaks = [(device.peak_allocated_bytes, device.items)]
    peaks += [(p.allocated_bytes, p.items) for p in device.parts if p.part is not Part.INIT]
    least = max(
        allocated - unsure * sum(items.get(name, 0) for name in ACTIVATION_ITEMS)
        for allocated, items in peaks
    )
    return round(least * (1 - coverage.margin(training)) + OUTSIDE_LEAST * device.outside_bytes)


def _device_room(bill: Bill, low_bytes: int) -> Room:
    if bill.device.runs is not False:
        return Room.FITS
    assert bill.device.ceiling_bytes is not None
    return Room.TOO_LARGE if low_bytes > bill.device.ceiling_bytes else Room.TIGHT


def _host_room(host: HostBill) -> Room:
    if host.fits is not False:
        return Room.FITS
    assert host.ceiling_bytes is not None
    over = host.total_bytes * (1 - host.margin) > host.ceiling_bytes
    return Room.TOO_LARGE if over else Room.TIGHT
