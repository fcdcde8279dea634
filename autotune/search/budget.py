"""The budget of a search: number of trials and time."""

import re
import time
from dataclasses import dataclass, field

from autotune.errors import AutotuneError

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """When to launch no further trial. Running ones are finished, and the winner confirmed."""

    max_trials: int
    """Launched trials of the study, those of an earlier run included."""
    max_s: float | None = None
    """Seconds of this run."""
    began: float = field(default_factory=time.monotonic)

    def allows(self, num_launched: int) -> bool:
        """Whether another trial may be launched."""
        return num_launched < self.max_trials and (
            self.max_s is None or time.monotonic() - self.began < self.max_s
        )

    def left_s(self, num_launched: int, mean_trial_s: float) -> float:
        """Return an estimate of the seconds until no further trial is launched."""
        by_trials = max(self.max_trials - num_launched, 0) * mean_trial_s
        if self.max_s is None:
            return by_trials
        return min(by_trials, max(self.max_s - (time.monotonic() - self.began), 0.0))


def parse_duration_s(text: str) -> float:
    """Return the seconds of a duration like `45m`.

    Raises:
        AutotuneError: not a positive number with one of the units s, m and h.

    Example:
        >>> parse_duration_s("1.5h")
        5400.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())
    if not match or float(match[1]) == 0:
        raise AutotuneError(
            f"--time-budget {text}: must be a positive number with a unit: 90s, 45m or 2h"
        )
    return float(match[1]) * _UNITS_S[match[2]]
