"""Before a launch: does the candidate fit, by the memory model and by trials that ran out?

Two reasons reject a candidate. The model predicts more than the ceiling by more than its error;
or the candidate needs at least as much of everything as a trial that really ran out. Each measured
trial corrects the model for this workload, so the study can say at its end which rejections it
would take back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from autotune.ceiling import format_gib
from autotune.errors import AutotuneError
from autotune.hardware import Device
from autotune.outcome import Failure, Outcome, Phase, Status
from autotune.predict.calibration import Calibration
from autotune.predict.memory.bill import Bill
from autotune.predict.memory.predict import (
    Surroundings,
    predict_memory,
    runs_under,
    screen_memory,
)
from autotune.predict.training import ModelSettings, Training, read_training
from autotune.search.candidate import Candidate
from autotune.workload import Workload

FAR = 0.15
"""The closed form decides alone where it is this far from the ceiling: its error is below 10 %."""
RAN_OUT_MARGIN = 0.02
"""How much more than a trial that ran out a candidate must need in all: fragmentation is noisy,
and the largest batch that fits is not always monotonic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A candidate that was not launched."""

    candidate: Candidate
    needed_bytes: int
    """Predicted, what lies outside the allocator included; not corrected."""
    margin: float
    """The model's own, of the allocator's part."""
    outside_bytes: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {
            "candidate": self.candidate.to_json(),
            "needed_bytes": self.needed_bytes,
            "margin": self.margin,
            "outside_bytes": self.outside_bytes,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild a rejection from `to_json`."""
        return cls(**{**mapping, "candidate": Candidate.from_json(mapping["candidate"])})

    def outcome(self) -> Outcome:
        """Return the outcome of a trial that never ran."""
        return Outcome(
            status=Status.REJECTED,
            evaluator="modelled",
            failure=Failure(reason=self.reason, needed_bytes=self.needed_bytes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenReport:
    """What screening did in a study."""

    num_rejected: int
    """Launches saved."""
    num_taken_back: int
    """Of these, how many the corrected model would launch now."""
    num_compared: int
    """Trials whose peak was both predicted and measured."""
    mean_error: float | None
    """Mean absolute relative error of the uncorrected predictions; None without such trials."""
    worst_error: float | None
    num_surprises: int
    """Launched trials that the model said fit with its margin, and that ran out."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild a report from `to_json`."""
        return cls(**mapping)


@dataclass(slots=True, kw_only=True)
class Screen:
    """Judges candidates of one study, and learns from its trials."""

    workload: Workload
    device: Device
    ceiling_bytes: int
    calibration: Calibration = field(default_factory=Calibration)
    rejections: list[Rejection] = field(default_factory=list)
    _ran_out: list[Bill] = field(default_factory=list)
    _num_surprises: int = 0

    def judge(self, candidate: Candidate) -> Rejection | None:
        """Return why a candidate should not be launched, or None.

        A candidate that the model cannot read is launched: DeepSpeed has the last word.
        """
        quick = self._bill(candidate, replay=False)
        if quick is None or self._needed(quick, margin=FAR) < self.ceiling_bytes:
            return None
        bill = self._bill(candidate, replay=True)
        if bill is None:
            return None
        margin = self.calibration.margin(bill.device.margin)
        least = self._needed(bill, margin=-margin)
        if least > self.ceiling_bytes:
            return self._rejection(
                candidate,
                bill,
                f"predicted to need {format_gib(self._needed(bill, margin=0))} "
                f"(+-{margin:.1%}) of a ceiling of {format_gib(self.ceiling_bytes)}; most in the "
                f"{bill.device.part}",
            )
        if not self._runs(candidate, bill, margin=margin):
            return self._rejection(
                candidate,
                bill,
                f"predicted to run out of memory under a ceiling of "
                f"{format_gib(self.ceiling_bytes)}, or to give back cache in every step: "
                f"{format_gib(self._needed(bill, margin=0))} (+-{margin:.1%}) fragmented; most in "
                f"the {bill.device.part}",
                fragmented=True,
            )
        if any(_needs_all_that(bill, ran_out) for ran_out in self._ran_out):
            return self._rejection(
                candidate, bill, "needs at least as much of everything as a trial that ran out"
            )
        return None

    def learn(self, candidate: Candidate, outcome: Outcome) -> None:
        """Take in what became of a launched trial."""
        bill = self._bill(candidate, replay=True)
        if bill is None:
            return
        if outcome.status in (Status.OVER_CEILING, Status.OOM_DEVICE):
            self._ran_out.append(bill)
            margin = self.calibration.margin(bill.device.margin)
            if self._needed(bill, margin=margin) <= self.ceiling_bytes:
                self._num_surprises += 1
        measured = _allocated_bytes(outcome)
        if measured is not None:
            self.calibration = self.calibration.and_pair(bill.device.peak_allocated_bytes, measured)

    def report(self) -> ScreenReport:
        """Return what screening did so far."""
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
        allocated = rejection.needed_bytes - rejection.outside_bytes
        margin = self.calibration.margin(rejection.margin)
        least = allocated * self.calibration.factor * (1 - margin) + rejection.outside_bytes
        return least <= self.ceiling_bytes

    def _needed(self, bill: Bill, *, margin: float) -> float:
        device = bill.device
        allocated = device.peak_allocated_bytes * self.calibration.factor
        return allocated * (1 + margin) + self._outside_bytes(bill)

    def _runs(self, candidate: Candidate, bill: Bill, *, margin: float) -> bool:
        """Whether the candidate runs under the ceiling, if the model is high by its margin."""
        training = self._training(candidate)
        if self.device.name == "cpu" or training is None:
            return True
        allowed = self.ceiling_bytes - self._outside_bytes(bill)
        limit = int(allowed / (self.calibration.factor * (1 - margin)))
        reserved = bill.device.peak_reserved_bytes
        return (reserved is not None and reserved <= limit) or runs_under(
            training, self.device, limit
        )

    def _just_too_much(self, outside_bytes: int, margin: float) -> int:
        """Return the least need that the model, as it is corrected now, rejects."""
        allowed = self.ceiling_bytes - outside_bytes
        return int(allowed / (self.calibration.factor * (1 - margin))) + 1 + outside_bytes

    def _outside_bytes(self, bill: Bill) -> int:
        # A CPU rank has no context outside its allocator; what it adds to its parent counts.
        return 0 if self.device.name == "cpu" else bill.device.outside_bytes

    def _bill(self, candidate: Candidate, *, replay: bool) -> Bill | None:
        training = self._training(candidate)
        if training is None:
            return None
        predict = predict_memory if replay else screen_memory
        try:
            return predict(training, Surroundings(device=self.device))
        except AutotuneError:
            return None

    def _training(self, candidate: Candidate) -> Training | None:
        settings = candidate.model_settings
        try:
            return read_training(
                candidate.ds_config,
                self.workload,
                ModelSettings(
                    activation_checkpointing=bool(settings.get("activation_checkpointing")),
                    attn_implementation=str(settings["attn_implementation"]),
                ),
            )
        except AutotuneError:
            return None

    def _rejection(
        self, candidate: Candidate, bill: Bill, reason: str, *, fragmented: bool = False
    ) -> Rejection:
        outside = self._outside_bytes(bill)
        needed = bill.device.peak_allocated_bytes + outside
        if fragmented:
            # What it needs exactly would take a dozen replays; it is more than the ceiling.
            margin = self.calibration.margin(bill.device.margin)
            needed = max(needed, self._just_too_much(outside, margin))
        rejection = Rejection(
            candidate=candidate,
            needed_bytes=needed,
            margin=bill.device.margin,
            outside_bytes=outside,
            reason=reason,
        )
        self.rejections.append(rejection)
        return rejection


def read_rejections(attributes: Mapping[str, Any]) -> list[Rejection]:
    """Return the rejections that are stored with a study."""
    return [Rejection.from_json(mapping) for mapping in attributes.get("rejections", [])]


def _needs_all_that(bill: Bill, ran_out: Bill) -> bool:
    """Whether a candidate needs at least as much of every item, and clearly more in all.

    Compared where the one that ran out needs most.
    """
    part = ran_out.device.part
    theirs = next((p for p in ran_out.device.parts if p.part.value == part), None)
    ours = next((p for p in bill.device.parts if p.part.value == part), None)
    if theirs is None or ours is None:
        return False
    return ours.allocated_bytes >= theirs.allocated_bytes * (1 + RAN_OUT_MARGIN) and all(
        ours.items.get(item, 0) >= bytes_ for item, bytes_ in theirs.items.items()
    )


def _allocated_bytes(outcome: Outcome) -> int | None:
    """Return the fattest rank's allocated peak after the build; None on CPU ranks."""
    if outcome.status is not Status.COMPLETE:
        return None
    peaks = [
        memory.allocated_bytes
        for rank in outcome.measured.ranks
        for memory in rank.memory
        if memory.allocated_bytes is not None and memory.phase is not Phase.BUILD
    ]
    return max(peaks, default=None)
