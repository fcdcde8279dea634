"""Predicted beside measured, trial by trial, and how far apart they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
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

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {"pairs": [list(pair) for pair in self.pairs]}

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild them from `to_json`."""
        return cls(pairs=tuple((p, m) for p, m in mapping["pairs"]))
