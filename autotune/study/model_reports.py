"""How far the memory and the speed model were off on a study's own trials."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.serialization import Serializable


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenReport(Serializable):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedReport(Serializable):
    """How the speed model did in a study; its predictions are never corrected here."""

    num_compared: int
    """Trials whose speed was predicted, and measured or emulated."""
    mean_error: float | None
    """Mean absolute relative error; None without such trials."""
    worst_error: float | None
    predicted: Mapping[str, tuple[float, float, float]]
    """By trial number: tokens/s of all ranks, and how low and high they may be."""
    host_slowness: float | None = None
    """By the trials, how many times as long the hosts take for their part as the model says; None
    in a study that is older than this question."""

    def of_trial(self, number: int) -> tuple[float, float, float] | None:
        """Return what was predicted of a complete trial, if it could be."""
        return self.predicted.get(str(number))
