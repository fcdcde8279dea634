"""Errors of the memory and the speed model on a study's own trials."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.serialization import Serializable


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenReport(Serializable):
    """Results of memory screening in a study."""

    num_rejected: int
    """Launches saved."""
    num_taken_back: int
    """Of these, how many fit by the corrected model."""
    num_compared: int
    """Trials whose peak was both predicted and measured."""
    mean_error: float | None
    """Mean absolute relative error of the uncorrected predictions; None without such trials."""
    worst_error: float | None
    num_surprises: int
    """Launched trials that were predicted to fit with the margin, and ran out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedReport(Serializable):
    """Errors of the speed model in a study, without corrections."""

    num_compared: int
    """Trials whose speed was predicted, and measured or emulated."""
    mean_error: float | None
    """Mean absolute relative error; None without such trials."""
    worst_error: float | None
    predicted: Mapping[str, tuple[float, float, float]]
    """By trial number: tokens/s of all ranks, with the low and high end."""
    host_slowness: float | None = None
    """Time of the hosts' part over its prediction, fitted to the trials; None if recorded by an
    older version."""

    def of_trial(self, number: int) -> tuple[float, float, float] | None:
        """Return the prediction for a complete trial; None without one."""
        return self.predicted.get(str(number))
