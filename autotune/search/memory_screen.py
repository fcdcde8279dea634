"""Rejects candidates that do not fit, by the memory model and by trials that ran out of memory.

Three reasons reject a candidate. The model predicts more than the ceiling by more than its error;
or that the ranks of a node need more than its memory; or the candidate needs at least as much of
every item as a trial that ran out. Each measured trial corrects the model for this workload, so the
study can report at its end which rejections no longer hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autotune.errors import AutotuneError
from autotune.job.ceiling import format_gib
from autotune.job.device import Device
from autotune.job.workload import Workload
from autotune.predict.calibration import Calibration
from autotune.predict.memory.allocator import Peak
from autotune.predict.memory.error_margins import (
    CLOSED_FORM_SURE,
    FRAGMENTATION_MARGIN,
    MEASURED_MARGIN,
    RAN_OUT_MARGIN,
)
from autotune.predict.memory.estimate import MemoryEstimate
from autotune.predict.memory.predict import (
    Surroundings,
    predict_memory,
    runs_under,
    screen_memory,
)
from autotune.predict.program.items import Item, Part
from autotune.study.candidate import Candidate, training_of
from autotune.study.model_reports import ScreenReport
from autotune.study.outcome import Outcome, Phase, RankMeasurement, Status
from autotune.study.rejection import Evidence, Rejection

_SURE = tuple(
    item.name.lower()
    for item in (
        Item.WEIGHTS,
        Item.FROZEN_WEIGHTS,
        Item.MASTER_WEIGHTS,
        Item.MOMENTS,
        Item.ACTIVATIONS,
        Item.LOGITS,
    )
)
_WASTE = Item.BLOCK_WASTE.name.lower()
_STANDING = frozenset({Evidence.HOST, Evidence.TRIAL})
"""Rejections that a calibration of the device memory model does not change."""


@dataclass(slots=True, kw_only=True)
class Screen:
    """Judges candidates of one study, and learns from its trials."""

    workload: Workload
    device: Device
    ceiling_bytes: int
    host_bytes: int | None = None
    """Memory of a node; None does not check it."""
    local_ranks: int = 1
    """Ranks that share a node."""
    expandable_segments: bool = False
    """Whether PYTORCH_ALLOC_CONF sets expandable segments: then memory does not fragment."""
    calibration: Calibration = field(default_factory=Calibration)
    rejections: list[Rejection] = field(default_factory=list)
    """Of the whole study; the caller adds a rejection that it acts on."""
    _ran_out: list[Peak] = field(default_factory=list)
    """For each trial that ran out, the part in which it did."""
    _num_surprises: int = 0
    _least_outside_bytes: int | None = None
    """The smallest amount that a measured trial held outside the allocator."""
    _estimates: dict[str, MemoryEstimate] = field(default_factory=dict)
    """Of candidates that may be launched, so that `learn` need not replay them again."""

    @property
    def is_reliable(self) -> bool:
        """Whether accepted candidates mostly fit; on CPU ranks the predictions are too low."""
        return self.device.name != "cpu"

    def judge(self, candidate: Candidate) -> Rejection | None:
        """Return why a candidate should not be launched, or None.

        A candidate that the model cannot read is not rejected: DeepSpeed decides.
        """
        quick = self._sure_estimate(candidate)
        if (
            quick is not None
            and self._needs(quick, margins=-1) > self.ceiling_bytes * CLOSED_FORM_SURE
        ):
            return self._rejection(candidate, quick, Evidence.CLOSED_FORM)
        if quick is not None and self._exceeds_host(quick):
            return self._rejection(candidate, quick, Evidence.HOST)
        estimate = self._estimate(candidate)
        if estimate is None:
            return None
        if self._needs(estimate, margins=-1) > self.ceiling_bytes:
            return self._rejection(candidate, estimate, Evidence.REPLAY)
        if not self._runs(candidate, estimate):
            return self._rejection(candidate, estimate, Evidence.FRAGMENTATION)
        if any(_needs_all_that(estimate, ran_out) for ran_out in self._ran_out):
            return self._rejection(candidate, estimate, Evidence.TRIAL)
        self._estimates[self._identity(candidate)] = estimate
        return None

    def may_fit(self, candidate: Candidate) -> bool:
        """Whether a candidate fits by the closed form, which takes a millisecond.

        It may be far off either way; `judge` decides.
        """
        try:
            training = training_of(candidate, self.workload)
            estimate = screen_memory(training, self._surroundings)
        except AutotuneError:
            return False
        return self._needs(estimate) <= self.ceiling_bytes and not self._exceeds_host(estimate)

    def predicted_bytes(self, candidate: Candidate) -> float | None:
        """Return what a launched candidate is predicted to need; None without a prediction."""
        estimate = self._estimates.get(self._identity(candidate))
        return None if estimate is None else self._needs(estimate)

    def learn(self, candidate: Candidate, outcome: Outcome) -> None:
        """Learn from the outcome of a launched trial."""
        estimate = self._estimates.pop(self._identity(candidate), None)
        estimate = estimate or self._estimate(candidate)
        if estimate is None:
            return
        if outcome.status in (Status.OVER_CEILING, Status.OOM_DEVICE):
            peak = _where_it_ran_out(estimate, outcome.failure.phase if outcome.failure else None)
            if peak is not None:
                self._ran_out.append(peak)
            if self._needs(estimate, margins=1) <= self.ceiling_bytes:
                self._num_surprises += 1
        if outcome.measurement is not None:
            self._compare(estimate, outcome.measurement.ranks, charged_bytes=outcome.charged_bytes)

    def _compare(
        self, estimate: MemoryEstimate, ranks: Sequence[RankMeasurement], *, charged_bytes: int
    ) -> None:
        allocated_bytes, outside_bytes = _allocated_bytes(ranks), _outside_bytes(ranks)
        if allocated_bytes is None or outside_bytes is None:
            return
        outside_bytes += charged_bytes
        predicted_bytes = estimate.device.peak_allocated_bytes
        self.calibration = self.calibration.and_pair(predicted_bytes, allocated_bytes)
        known_bytes = self._least_outside_bytes
        self._least_outside_bytes = min(outside_bytes, known_bytes or outside_bytes)

    def report(self) -> ScreenReport:
        """Return the results of screening so far."""
        calibration = self.calibration
        return ScreenReport(
            num_rejected=len(self.rejections),
            num_taken_back=sum(self._would_launch(rejection) for rejection in self.rejections),
            num_compared=len(calibration.pairs),
            mean_error=calibration.mean_error,
            worst_error=calibration.worst_error,
            num_surprises=self._num_surprises,
        )

    def _would_launch(self, rejection: Rejection) -> bool:
        if rejection.evidence in _STANDING:
            return False
        if rejection.evidence is Evidence.FRAGMENTATION:
            estimate = self._estimate(rejection.candidate)
            return estimate is None or self._runs(rejection.candidate, estimate)
        far = CLOSED_FORM_SURE if rejection.evidence is Evidence.CLOSED_FORM else 1.0
        least = self._corrected(
            rejection.needed_bytes - rejection.outside_bytes,
            rejection.outside_bytes,
            margin=-self.calibration.margin(rejection.margin),
        )
        return least <= self.ceiling_bytes * far

    def _runs(self, candidate: Candidate, estimate: MemoryEstimate) -> bool:
        """Whether a candidate runs with the ceiling raised by the model's error.

        Always true for CPU ranks, whose allocator does not cache blocks.
        """
        reserved_bytes = estimate.device.peak_reserved_bytes
        if self.expandable_segments or self.device.name == "cpu" or reserved_bytes is None:
            return True
        outside_bytes = self._least_outside_bytes
        if outside_bytes is None:
            outside_bytes = estimate.device.outside_bytes
        allowed_bytes = (self.ceiling_bytes - outside_bytes) / self.calibration.factor
        margin = max(MEASURED_MARGIN, self.calibration.margin(estimate.device.margin))
        limit_bytes = int(allowed_bytes * (1 + margin))
        return reserved_bytes <= limit_bytes or runs_under(
            training_of(candidate, self.workload), self.device, limit_bytes
        )

    def _exceeds_host(self, estimate: MemoryEstimate) -> bool:
        """Whether the ranks of a node need more than its memory, by more than the model's error."""
        least_bytes = estimate.host.total_bytes * (1 - estimate.host.margin)
        return self.host_bytes is not None and least_bytes > self.host_bytes

    def _needs(self, estimate: MemoryEstimate, *, margins: int = 0) -> float:
        """Return the corrected prediction, plus `margins` times its margin."""
        return self._corrected(
            estimate.device.peak_allocated_bytes,
            self._outside(estimate),
            margin=margins * self.calibration.margin(estimate.device.margin),
        )

    def _corrected(self, allocated_bytes: int, outside_bytes: int, *, margin: float) -> float:
        if self._least_outside_bytes is not None:
            outside_bytes = self._least_outside_bytes
        return allocated_bytes * self.calibration.factor * (1 + margin) + outside_bytes

    def _outside(self, estimate: MemoryEstimate) -> int:
        # A CPU rank has no context outside its allocator; only what it adds to its parent counts.
        return 0 if self.device.name == "cpu" else estimate.device.outside_bytes

    @property
    def _surroundings(self) -> Surroundings:
        return Surroundings(
            device=self.device, local_ranks=self.local_ranks, host_bytes=self.host_bytes
        )

    def _identity(self, candidate: Candidate) -> str:
        return candidate.identity(self.workload.world_size)

    def _estimate(self, candidate: Candidate) -> MemoryEstimate | None:
        try:
            return predict_memory(training_of(candidate, self.workload), self._surroundings)
        except AutotuneError:
            return None

    def _sure_estimate(self, candidate: Candidate) -> MemoryEstimate | None:
        """Return the closed form's lower bound of what a candidate needs."""
        try:
            estimate = screen_memory(training_of(candidate, self.workload), self._surroundings)
        except AutotuneError:
            return None
        sure_bytes = sum(estimate.device.items.get(item, 0) for item in _SURE)
        return replace(
            estimate,
            device=replace(
                estimate.device,
                peak_allocated_bytes=sure_bytes,
                # Fragmentation only adds.
                margin=estimate.device.margin - FRAGMENTATION_MARGIN,
            ),
        )

    def _rejection(
        self, candidate: Candidate, estimate: MemoryEstimate, evidence: Evidence
    ) -> Rejection:
        device, outside = estimate.device, self._outside(estimate)
        return Rejection(
            candidate=candidate,
            evidence=evidence,
            needed_bytes=device.peak_allocated_bytes + outside,
            outside_bytes=outside,
            margin=device.margin,
            reason=self._reason(estimate, evidence),
        )

    def _reason(self, estimate: MemoryEstimate, evidence: Evidence) -> str:
        device, host = estimate.device, estimate.host
        if evidence is Evidence.HOST:
            assert self.host_bytes is not None
            return (
                f"predicted to need {format_gib(host.total_bytes)} (+-{host.margin:.0%}) of host "
                f"memory for {host.local_ranks} ranks of a node, which has "
                f"{format_gib(self.host_bytes)}"
            )
        needed = format_gib(self._needs(estimate))
        reasons = {
            Evidence.CLOSED_FORM: f"predicted to need at least {needed}",
            Evidence.REPLAY: f"predicted to need {needed} "
            f"(+-{self.calibration.margin(device.margin):.1%})",
            Evidence.FRAGMENTATION: f"predicted to run out, fragmented, with {needed} allocated",
            Evidence.TRIAL: "needs at least as much of every item as a trial that ran out: "
            f"{needed}",
        }
        return (
            f"{reasons[evidence]} of a ceiling of {format_gib(self.ceiling_bytes)}; most in the "
            f"{device.part}"
        )


def _where_it_ran_out(estimate: MemoryEstimate, phase: Phase | None) -> Peak | None:
    """Return the part in which a trial ran out; in the steps, the one that needs most."""
    part = Part.INIT.value if phase in (Phase.BUILD, Phase.INIT) else estimate.device.part
    return _part(estimate, part)


def _needs_all_that(estimate: MemoryEstimate, ran_out: Peak) -> bool:
    """Whether a candidate needs at least as much of every item, and clearly more in total.

    Block waste is not compared: it varies with the allocator.
    """
    ours = _part(estimate, ran_out.part.value)
    return (
        ours is not None
        and ours.allocated_bytes >= ran_out.allocated_bytes * (1 + RAN_OUT_MARGIN)
        and all(
            ours.items.get(item, 0) >= bytes_
            for item, bytes_ in ran_out.items.items()
            if item != _WASTE
        )
    )


def _part(estimate: MemoryEstimate, part: str) -> Peak | None:
    return next((peak for peak in estimate.device.parts if peak.part.value == part), None)


def _allocated_bytes(ranks: Sequence[RankMeasurement]) -> int | None:
    """Return the largest allocated peak of a rank in the steps, comparable with an estimate's peak.

    None on CPU ranks.
    """
    peaks = [
        memory.allocated_bytes
        for rank in ranks
        for memory in rank.memory
        if memory.allocated_bytes is not None and memory.phase in (Phase.FIRST_STEP, Phase.STEADY)
    ]
    return max(peaks, default=None)


def _outside_bytes(ranks: Sequence[RankMeasurement]) -> int | None:
    """Return the smallest amount that a rank held outside the allocator; None on CPU ranks."""
    held = [
        [m.used_bytes - m.reserved_bytes for m in rank.memory if m.reserved_bytes is not None]
        for rank in ranks
    ]
    return min((max(bytes_) for bytes_ in held if bytes_), default=None)
