"""What the speed model says of a study's candidates, and how right it was on its trials."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from autotune.errors import AutotuneError
from autotune.outcome import Outcome, Status
from autotune.predict.speed_calibration import SpeedCalibration
from autotune.predict.throughput import SpeedSurroundings, Throughput, predict_throughput
from autotune.search.candidate import Candidate, TrialRecord, training_of
from autotune.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedReport:
    """How the speed model did in a study; its predictions are never corrected here."""

    num_compared: int
    """Trials whose speed was predicted, and measured or emulated."""
    mean_error: float | None
    """Mean absolute relative error; None without such trials."""
    worst_error: float | None
    predicted: Mapping[str, tuple[float, float, float]]
    """By trial number: tokens/s of all ranks, and how low and high they may be."""

    def of_trial(self, number: int) -> tuple[float, float, float] | None:
        """Return what was predicted of a complete trial, if it could be."""
        return self.predicted.get(str(number))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {
            "num_compared": self.num_compared,
            "mean_error": self.mean_error,
            "worst_error": self.worst_error,
            "predicted": {number: list(speeds) for number, speeds in self.predicted.items()},
        }

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild a report from `to_json`."""
        predicted = {
            number: (p, low, high) for number, (p, low, high) in mapping["predicted"].items()
        }
        return cls(**{**mapping, "predicted": predicted})


@dataclass(slots=True, kw_only=True)
class SpeedModel:
    """Predicts the speed of one study's candidates, and is corrected by its complete trials."""

    workload: Workload
    surroundings: SpeedSurroundings
    """Of the ranks that the trials really have, or pretend to have."""
    calibration: SpeedCalibration = field(default_factory=SpeedCalibration)
    _predicted: dict[str, Throughput | None] = field(default_factory=dict)
    """By identity: a prediction takes 5 to 15 ms."""

    def predict(self, candidate: Candidate) -> Throughput | None:
        """Return the uncorrected prediction; None if the model cannot read the candidate."""
        identity = candidate.identity(self.workload.world_size)
        if identity not in self._predicted:
            self._predicted[identity] = self._predict(candidate)
        return self._predicted[identity]

    def _predict(self, candidate: Candidate) -> Throughput | None:
        try:
            return predict_throughput(training_of(candidate, self.workload), self.surroundings)
        except AutotuneError:
            return None

    def learn(self, candidate: Candidate, outcome: Outcome) -> None:
        """Take in how fast a trial really was."""
        if outcome.status is not Status.COMPLETE:
            return
        predicted = self.predict(candidate)
        if predicted is not None:
            self.calibration = self.calibration.and_pair(
                predicted.tokens_per_s, outcome.tokens_per_s.mean
            )

    def report(self, records: Iterable[TrialRecord]) -> SpeedReport:
        """Return how right the model was so far.

        Args:
            records: the study's trials.
        """
        complete = [r for r in records if r.outcome and r.outcome.status is Status.COMPLETE]
        predictions = {str(r.number): self.predict(r.candidate) for r in complete}
        return SpeedReport(
            num_compared=len(self.calibration.pairs),
            mean_error=self.calibration.mean_error,
            worst_error=self.calibration.worst_error,
            predicted={
                number: (p.tokens_per_s, p.tokens_per_s_low, p.tokens_per_s_high)
                for number, p in predictions.items()
                if p is not None
            },
        )
