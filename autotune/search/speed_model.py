"""The speed model's predictions of a study's candidates, and their errors on its trials."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from autotune.errors import AutotuneError
from autotune.job.workload import Workload
from autotune.predict.prediction_errors import Pairs
from autotune.predict.speed_calibration import SpeedCalibration
from autotune.predict.throughput import SpeedSurroundings, Throughput
from autotune.study.candidate import Candidate, TrialRecord, training_of
from autotune.study.model_reports import SpeedReport
from autotune.study.outcome import Outcome, Status


@dataclass(slots=True, kw_only=True)
class SpeedModel:
    """Predicts the speed of one study's candidates, and is corrected by its complete trials."""

    workload: Workload
    surroundings: SpeedSurroundings
    """Of the ranks that the trials have, or emulate."""
    calibration: SpeedCalibration = field(default_factory=SpeedCalibration)
    _predicted: dict[tuple[str, SpeedCalibration], Throughput | None] = field(
        init=False, default_factory=dict
    )
    """By identity and calibration: a prediction takes 5 to 15 ms."""

    def predict(self, candidate: Candidate) -> Throughput | None:
        """Return the uncorrected prediction; None if the model cannot read the candidate."""
        return self._predict(candidate, SpeedCalibration())

    def corrected(self, candidate: Candidate) -> Throughput | None:
        """Return the prediction corrected by the trials so far; None as above."""
        return self._predict(candidate, self.calibration)

    def _predict(self, candidate: Candidate, calibration: SpeedCalibration) -> Throughput | None:
        key = candidate.identity(self.workload.world_size), calibration
        if key not in self._predicted:
            try:
                training = training_of(candidate, self.workload)
                self._predicted[key] = calibration.predict(training, self.surroundings)
            except AutotuneError:
                self._predicted[key] = None
        return self._predicted[key]

    def learn(self, candidate: Candidate, outcome: Outcome) -> None:
        """Learn from the measured speed of a trial.

        A trial that was stopped early is ignored: the first steps of stage 3 take up to twice as
        long as later ones, which would look like a slow host.
        """
        if outcome.status is not Status.COMPLETE:
            return
        # A candidate that the model cannot read does not calibrate it.
        with contextlib.suppress(AutotuneError):
            self.calibration = self.calibration.and_trial(
                training_of(candidate, self.workload),
                self.surroundings,
                outcome.tokens_per_s.mean,
            )

    def report(self, records: Iterable[TrialRecord]) -> SpeedReport:
        """Return the errors of the model so far.

        Args:
            records: the study's trials.
        """
        pairs, predicted = Pairs(), {}
        for record in records:
            outcome = record.outcome
            if outcome is None or outcome.status is not Status.COMPLETE:
                continue
            speed = self.predict(record.candidate)
            if speed is not None:
                pairs = pairs.and_pair(speed.tokens_per_s, outcome.tokens_per_s.mean)
                predicted[str(record.number)] = (
                    speed.tokens_per_s,
                    speed.tokens_per_s_low,
                    speed.tokens_per_s_high,
                )
        return SpeedReport(
            num_compared=len(pairs.pairs),
            mean_error=pairs.mean_error,
            worst_error=pairs.worst_error,
            predicted=predicted,
            host_slowness=self.calibration.host_slowness,
        )
