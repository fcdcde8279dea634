"""How the speed model does on the trials of one study, and what that changes. Pure."""

import math
from dataclasses import dataclass, replace

from autotune.predict.pairs import Pairs
from autotune.predict.throughput import Throughput

PRIOR_TRIALS = 1.0
"""The model's own word counts as much as so many trials that agree with it."""
PRIOR_WIDTH_TRIALS = 2.0
"""The same for how far it may be off."""
NINE_IN_TEN = 1.64
"""Standard deviations of a half width that covers nine in ten."""
LEAST_WIDTH = 0.03
"""Steps alone differ by this much from run to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedCalibration(Pairs):
    """Predicted and measured speeds of a study's complete trials, in tokens/s of all ranks."""

    @property
    def log_ratio(self) -> float:
        """What the logarithm of a prediction is corrected by; nothing without trials.

        It shrinks towards nothing while trials are few: with n of them it is n / (n + 1) of their
        mean.

        Example:
            >>> round(SpeedCalibration(pairs=((100.0, 121.0),)).factor, 3)
            1.1
        """
        ratios = self._ratios
        return sum(ratios) / (len(ratios) + PRIOR_TRIALS)

    @property
    def factor(self) -> float:
        """What a predicted speed is multiplied with."""
        return math.exp(self.log_ratio)

    def log_width(self, model_width: float) -> float:
        """Return how far the logarithm of a corrected speed may be off, either way.

        Args:
            model_width: the model's own, which fades with the number of trials.
        """
        shift = self.log_ratio
        residuals = sum((NINE_IN_TEN * (ratio - shift)) ** 2 for ratio in self._ratios)
        total = PRIOR_WIDTH_TRIALS * model_width**2 + residuals
        return max(math.sqrt(total / (PRIOR_WIDTH_TRIALS + len(self.pairs))), LEAST_WIDTH)

    def correct(self, predicted: Throughput) -> Throughput:
        """Return a prediction as the study's own trials would have it."""
        if not self.pairs:
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

    @property
    def _ratios(self) -> list[float]:
        return [math.log(measured / predicted) for predicted, measured in self.pairs]
