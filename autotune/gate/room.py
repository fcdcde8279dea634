"""How a job sits in its device and its host, at both ends of the model's error."""

from dataclasses import dataclass

from autotune.gate.job import Job, is_assumed
from autotune.predict.memory import coverage
from autotune.predict.memory.bill import Bill, HostBill
from autotune.predict.memory.items import Part
from autotune.predict.memory.verdict import Room
from autotune.predict.training import ModelSettings, Training

ACTIVATION_ITEMS = ("activations", "activation_gradients", "logits")
ASSUMED_ACTIVATIONS = 0.5
"""Share of the activations that a model of another shape, but as large, may do without."""
OUTSIDE_LEAST = 0.5
"""Share of what lies outside the allocator that is certain: it was measured on one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A job's bill and how it sits."""

    training: Training
    settings: ModelSettings
    bill: Bill
    device: Room
    host: Room

    @property
    def needed_bytes(self) -> int:
        """What the driver must have if the prediction is right, fragmentation avoided."""
        return self.bill.device.peak_allocated_bytes + self.bill.device.outside_bytes

    @property
    def low_bytes(self) -> int:
        """The same at the low end of the model's error."""
        return low_end_bytes(self.training, self.bill)

    @property
    def high_bytes(self) -> int:
        """The same at its high end."""
        return self.bill.device.needed_bytes


def judge_bill(job: Job, settings: ModelSettings) -> Judged:
    """Predict the job and judge device and host.

    What counts is whether it runs out of memory: one whose allocator has to give back cache in
    every step is slow, but it runs.
    """
    training = job.training(settings)
    bill = job.predict(training)
    return Judged(
        training=training,
        settings=settings,
        bill=bill,
        device=_device_room(training, bill),
        host=_host_room(bill.host),
    )


def low_end_bytes(training: Training, bill: Bill) -> int:
    """Return what a rank surely needs.

    Fragmentation does not count: users avoid it with expandable segments. Of an assumed shape only
    what hangs on the number of parameters is sure.
    """
    device = bill.device
    margin = coverage.margin(training)
    unsure = ASSUMED_ACTIVATIONS if is_assumed(training) else 0.0
    peaks = [(device.peak_allocated_bytes, device.items)]
    peaks += [(p.allocated_bytes, p.items) for p in device.parts if p.part is not Part.INIT]
    least = max(
        allocated - unsure * sum(items.get(name, 0) for name in ACTIVATION_ITEMS)
        for allocated, items in peaks
    )
    return round(least * (1 - margin) + OUTSIDE_LEAST * device.outside_bytes)


def _device_room(training: Training, bill: Bill) -> Room:
    if bill.device.runs is not False:
        return Room.FITS
    assert bill.device.ceiling_bytes is not None
    over = low_end_bytes(training, bill) > bill.device.ceiling_bytes
    return Room.TOO_LARGE if over else Room.TIGHT


def _host_room(host: HostBill) -> Room:
    if host.fits is not False:
        return Room.FITS
    assert host.ceiling_bytes is not None
    over = host.total_bytes * (1 - host.margin) > host.ceiling_bytes
    return Room.TOO_LARGE if over else Room.TIGHT
