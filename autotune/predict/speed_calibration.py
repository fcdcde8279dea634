"""How the speed model does on the trials of one study, and what that changes. Pure.

Two things are learned. How slow the host is: hosts of one kind differ by 20 to 40 % in what they
take for Python, and only steps that wait for it show that. And one factor for all configs.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from autotune.predict.throughput import SpeedSurroundings, Throughput, predict_throughput
from autotune.predict.training_job import Training

HOSTS = tuple(2 ** (quarter / 4) for quarter in range(-4, 6))
"""The hosts that a trial is predicted for: from twice as fast as those that the constants are from
to 2.4 times as slow, in steps of a fifth."""
HOST_PULL = 0.4
"""A host that is e times as slow or as fast counts as much as a trial whose speed is off by this
much, as a logarithm. Of four hosts of H200s the furthest were 0.8 and 1.4 times as slow."""
PRIOR_TRIALS = 1.0
"""The model's own word counts as much as so many trials that agree with it."""
PRIOR_WIDTH_TRIALS = 2.0
"""The same for how far it may be off."""
NINE_IN_TEN = 1.64
"""Standard deviations of a half width that covers nine in ten."""
LEAST_WIDTH = 0.03
"""Steps alone differ by this much from run to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedTrial:
    """How fast a trial was, and what the model says of it on one host and another."""

    measured: float
    """Tokens/s of all ranks."""
    predicted: tuple[float, ...]
    """The same, uncorrected, on each of `HOSTS`."""

    def log_ratio(self, host: int) -> float:
        """Return the logarithm of measured over predicted on one of `HOSTS`."""
        return math.log(self.measured / self.predicted[host])


@dataclass(frozen=True, kw_only=True)
class SpeedCalibration:
    """What the complete trials of a study say of the speed model."""

    trials: tuple[TimedTrial, ...] = ()

    def and_trial(self, training: Training, around: SpeedSurroundings, measured: float) -> Self:
        """Return this with one more trial.

        Args:
            training: what it ran.
            around: what it ran on.
            measured: tokens/s of all ranks.

        Raises:
            HardwareError: the device's speeds are not known.
        """
        predicted = tuple(
            predict_throughput(training, _on_host(around, slowness)).tokens_per_s
            for slowness in HOSTS
        )
        trial = TimedTrial(measured=measured, predicted=predicted)
        return replace(self, trials=(*self.trials, trial))

    @property
    def host_slowness(self) -> float:
        """How many times as long this pool's hosts take for their part; 1 without trials."""
        return HOSTS[self._host]

    @cached_property
    def log_ratio(self) -> float:
        """What the logarithm of a prediction for this host is corrected by; 0 without trials.

        It shrinks towards nothing while trials are few: with n of them it is n / (n + 1) of their
        mean.

        Example:
            >>> trial = TimedTrial(measured=121.0, predicted=(100.0,) * len(HOSTS))
            >>> round(SpeedCalibration(trials=(trial,)).factor, 3)
            1.1
        """
        return self._log_ratio(self._host)

    @property
    def factor(self) -> float:
        """What a predicted speed is multiplied with."""
        return math.exp(self.log_ratio)

    def predict(self, training: Training, around: SpeedSurroundings) -> Throughput:
        """Return a job's speed as the study's own trials would have it.

        Raises:
            HardwareError: the device's speeds are not known.
        """
        predicted = predict_throughput(training, _on_host(around, self.host_slowness))
        if not self.trials:
            return predicted
        factor = self.factor
        rate = predicted.tokens_per_s * factor
        width = math.exp(
            self.log_width(math.log(predicted.tokens_per_s_high / predicted.tokens_per_s))
        )
        return replace(
            predicted,
            tokens_per_s=rate,
            tokens_per_s_low=rate / width,
            tokens_per_s_high=rate * width,
            step_s=predicted.step_s / factor,
            items={name: seconds / factor for name, seconds in predicted.items.items()},
            tflops_per_gpu=predicted.tflops_per_gpu * factor,
            mfu=predicted.mfu * factor,
        )

    def log_width(self, model_width: float) -> float:
        """Return how far the logarithm of a corrected speed may be off, either way.

        Args:
            model_width: the model's own, which fades with the number of trials.
        """
        host, shift = self._host, self.log_ratio
        residuals = sum((NINE_IN_TEN * (t.log_ratio(host) - shift)) ** 2 for t in self.trials)
        total = PRIOR_WIDTH_TRIALS * model_width**2 + residuals
        return max(math.sqrt(total / (PRIOR_WIDTH_TRIALS + len(self.trials))), LEAST_WIDTH)

    @cached_property
    def _host(self) -> int:
        """The one of `HOSTS` whose predictions are right of most: least squares, and a pull."""
        return min(range(len(HOSTS)), key=self._misfit)

    def _misfit(self, host: int) -> float:
        shift = self._log_ratio(host)
        residuals = sum((trial.log_ratio(host) - shift) ** 2 for trial in self.trials)
        return residuals + PRIOR_TRIALS * shift**2 + (HOST_PULL * math.log(HOSTS[host])) ** 2

    def _log_ratio(self, host: int) -> float:
        ratios = [trial.log_ratio(host) for trial in self.trials]
        return sum(ratios) / (len(ratios) + PRIOR_TRIALS)


def _on_host(around: SpeedSurroundings, slowness: float) -> SpeedSurroundings:
    return replace(around, host_slowness=around.host_slowness * slowness)
