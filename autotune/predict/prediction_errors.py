"""Predicted beside measured, trial by trial, and how far apart they are."""

from dataclasses import dataclass
from statistics import fmean
from typing import Self

from autotune.serialization import Serializable


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs(Serializable):
    """What a model said of a study's trials without correction, and what they came to."""

    pairs: tuple[tuple[float, float], ...] = ()
    """Predicted, measured, in the same unit."""

    def and_pair(self, predicted: float, measured: float) -> Self:
        """Return these with one more trial."""
        return type(self)(pairs=(*self.pairs, (predicted, measured)))

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
