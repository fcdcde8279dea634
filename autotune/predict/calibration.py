"""How the memory model does on the trials of one study, and what that changes. Pure."""

from dataclasses import dataclass
from statistics import median

from autotune.predict.prediction_errors import Pairs

MIN_PAIRS = 3
"""Measured trials before they correct the model and its margin."""
LEAST_MARGIN = 0.005
"""Fragmentation alone moves peaks by this much from run to run."""
_RESIDUALS = 2.0
"""A margin is this many times the worst residual seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(Pairs):
    """Predicted and measured peaks of a study's trials that ran their steps.

    In bytes of the device's allocator.
    """

    @property
    def factor(self) -> float:
        """What a prediction is multiplied with; 1 until there are enough trials.

        Example:
            >>> Calibration(pairs=((100, 110), (200, 220), (50, 56))).factor
            1.1
        """
        if len(self.pairs) < MIN_PAIRS:
            return 1.0
        return median(measured / predicted for predicted, measured in self.pairs)

    def margin(self, model_margin: float) -> float:
        """Return how far a corrected prediction may be off, relative to it.

        A few trials that agree do not speak for keys that none of them set, so the model's own
        margin fades with their number.

        Args:
            model_margin: the model's own, which holds until there are enough trials.
        """
        if len(self.pairs) < MIN_PAIRS:
            return model_margin
        factor = self.factor
        residuals = (abs(m / (p * factor) - 1) for p, m in self.pairs)
        return max(_RESIDUALS * max(residuals), model_margin / len(self.pairs), LEAST_MARGIN)
