"""Does a job fit: one answer with its odds, decided here for every command.

The margin of a prediction is about two standard deviations of its error
(`autotune.predict.memory.error_margins`). The job is replayed under the limit of its device with
the prediction taken higher and lower by whole deviations; the highest at which it still runs gives
the odds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import NormalDist

from autotune.predict.memory import error_margins
from autotune.predict.memory.estimate import HostEstimate, MemoryEstimate
from autotune.predict.memory.predict import Replays, Surroundings, predict_memory
from autotune.predict.program.items import Part
from autotune.predict.training_job import ModelSettings, Training

ACTIVATION_ITEMS = ("activations", "activation_gradients", "logits")
SURE, UNLIKELY = 0.98, 0.02
"""Odds from which a job counts as fitting for certain, and up to which as not fitting."""
_ODDS = {2: 0.98, 1: 0.9, 0: 0.7, -1: 0.3, -2: 0.1}
"""By how many deviations the prediction may be raised before the job runs out: the middle of what
the normal distribution gives between two of them, rounded."""
_DEVIATIONS = 2
"""Of the prediction's error in its margin."""
_OUTSIDE_LEAST = 0.5
"""Share of what lies outside the allocator that is certain: it was measured on one device."""


class Answer(StrEnum):
    """The answers about memory; every command gives the same one."""

    FITS = "fits"
    DOES_NOT_FIT = "does_not_fit"
    NOT_JUDGED = "not_judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether a job fits one device and one node."""

    training: Training
    settings: ModelSettings = field(default_factory=ModelSettings)
    """What is set in the model."""
    estimate: MemoryEstimate
    device_odds: float
    """That a rank runs under the limit of its device."""
    host_odds: float
    """That the ranks of a node have enough host memory; 1 where that is not known."""
    low_bytes: int
    """What a rank needs of the device at the low end of the prediction's error."""
    is_pressed: bool = False
    """Whether it runs only by giving back the allocator's cache in its steady steps: it is slow."""
    is_rough: bool
    """Whether the shape, or where activations lie, is assumed: then only certain odds count."""

    @property
    def answer(self) -> Answer:
        """Whether the job fits device and host."""
        answers = (self.device_answer, self.host_answer)
        if Answer.DOES_NOT_FIT in answers:
            return Answer.DOES_NOT_FIT
        return Answer.NOT_JUDGED if Answer.NOT_JUDGED in answers else Answer.FITS

    @property
    def device_answer(self) -> Answer:
        """Whether a rank fits its device."""
        if self.is_rough and UNLIKELY < self.device_odds < SURE:
            return Answer.NOT_JUDGED
        return Answer.FITS if self.device_odds >= 1 / 2 else Answer.DOES_NOT_FIT

    @property
    def host_answer(self) -> Answer:
        """Whether the ranks of a node fit its memory."""
        return Answer.FITS if self.host_odds >= 1 / 2 else Answer.DOES_NOT_FIT

    @property
    def odds(self) -> float:
        """That the job runs, as far as memory is concerned."""
        return min(self.device_odds, self.host_odds)

    @property
    def predicted_bytes(self) -> int:
        """What a rank needs of the device if the prediction is right, fragmentation avoided."""
        device = self.estimate.device
        return device.peak_allocated_bytes + device.outside_bytes

    @property
    def high_bytes(self) -> int:
        """The same at the high end of the prediction's error."""
        device = self.estimate.device
        return round(device.peak_allocated_bytes * (1 + device.margin)) + device.outside_bytes


def predict_fit(training: Training, surroundings: Surroundings, *, unsure: float = 0.0) -> Fit:
    """Predict a job's memory and the odds that it runs.

    Args:
        training: the job.
        surroundings: its device and host; `ceiling_bytes` is the limit.
        unsure: share of the activations that the job may do without: those of an assumed shape,
            or checkpoints kept on the host. Above 0 the peak decides, without replays under the
            limit, since it is unknown where tensors of another shape would lie.

    Raises:
        WorkloadError: the model has to be traced, and cannot be.
    """
    limit_bytes = surroundings.ceiling_bytes
    assert limit_bytes is not None
    estimate = predict_memory(training, replace(surroundings, ceiling_bytes=None))
    estimate = replace(estimate, device=replace(estimate.device, ceiling_bytes=limit_bytes))
    low_bytes = _low_end_bytes(training, estimate, unsure=unsure)
    fit = Fit(
        training=training,
        estimate=estimate,
        device_odds=0.0,
        host_odds=host_odds(estimate.host),
        low_bytes=low_bytes,
        is_rough=unsure > 0,
    )
    if unsure > 0:
        return replace(fit, device_odds=_odds_of_interval(fit, limit_bytes))
    odds, is_pressed = _odds_by_replay(fit, surroundings, limit_bytes)
    return replace(fit, device_odds=odds, is_pressed=is_pressed)


def host_odds(host: HostEstimate) -> float:
    """Return the odds that a node has enough memory; 1 where its memory is not known."""
    if host.ceiling_bytes is None or host.total_bytes == 0:
        return 1.0
    spare = host.ceiling_bytes / host.total_bytes - 1
    return NormalDist(sigma=host.margin / _DEVIATIONS).cdf(spare)


def _odds_by_replay(fit: Fit, surroundings: Surroundings, limit_bytes: int) -> tuple[float, bool]:
    """Return the odds, and whether steady steps have to give back cache."""
    training, device = fit.training, fit.estimate.device
    replays = Replays.of(training, surroundings.device, outside_bytes=device.outside_bytes)
    allowed = limit_bytes - device.outside_bytes
    reserved = device.peak_reserved_bytes or 0
    deviation = error_margins.running_margin(training) / _DEVIATIONS
    for deviations, odds in _ODDS.items():
        limit = round(allowed / (1 + deviations * deviation))
        if limit >= max(reserved, device.init_reserved_bytes or 0):
            return odds, False
        if limit < device.peak_allocated_bytes:
            continue
        replayed = replays.of_rank(device.rank, limit_bytes=limit)
        if replayed.ran_out is None:
            return odds, not replayed.fits
    return UNLIKELY, False


def _odds_of_interval(fit: Fit, limit_bytes: int) -> float:
    for needed_bytes, odds in _rough_odds(fit):
        if needed_bytes <= limit_bytes:
            return odds
    return UNLIKELY


def _rough_odds(fit: Fit) -> Iterator[tuple[int, float]]:
    yield fit.high_bytes, SURE
    yield fit.predicted_bytes, _ODDS[0]
    yield fit.low_bytes, _ODDS[-1]


def _low_end_bytes(training: Training, estimate: MemoryEstimate, *, unsure: float) -> int:
    """Return what is needed at the low end of the prediction's error.

    Every part of the step has its own low end, since the peak may move.
    """
    device = estimate.device
    peaks = [(device.peak_allocated_bytes, device.items)]
    peaks += [(p.allocated_bytes, p.items) for p in device.parts if p.part is not Part.INIT]
    least = max(
        allocated - unsure * sum(items.get(name, 0) for name in ACTIVATION_ITEMS)
        for allocated, items in peaks
    )
    certain = 1 - error_margins.margin(training)
    return round(least * certain + _OUTSIDE_LEAST * device.outside_bytes)
