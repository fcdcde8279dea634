"""How the memory model does on the trials of one study, and what that changes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Self

MIN_PAIRS = 3
"""Measured trials before they correct the model and its margin."""
LEAST_MARGIN = 0.005
"""Fragmentation alone moves peaks by this much from run to run."""
_RESIDUALS = 2.0
"""A margin is this many times the worst residual seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Predicted and measured peaks of a study's trials, in bytes of the device's allocator."""

    pairs: tuple[tuple[int, int], ...] = ()
    """Predicted, measured; of trials that ran their steps."""

    def and_pair(self, predicted_bytes: int, measured_bytes: int) -> Self:
        """Return the calibration with one more trial."""
        return type(self)(pairs=(*self.pairs, (predicted_bytes, measured_bytes)))

    @property
    def errors(self) -> tuple[float, ...]:
        """Relative error of each uncorrected prediction; negative where it was too low."""
        return tuple(predicted / measured - 1 for predicted, measured in self.pairs)

    @property
    def mean_error(self) -> float | None:
        """Mean absolute relative error; None without trials."""
        return fmean(map(abs, self.errors)) if self.pairs else None

    @property
    def worst_error(self) -> float | None:
        """The error that is furthest from zero; None without trials."""
        return max(self.errors, key=abs, default=None)

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

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {"pairs": [list(pair) for pair in self.pairs]}

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild a calibration from `to_json`."""
        return cls(pairs=tuple((p, m) for p, m in mapping["pairs"]))
