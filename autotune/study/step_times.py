"""Computes one number with an interval from raw step times.

The ranks, which decide when a trial may stop, and the readers of their numbers apply the same
rules to the same raw data.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Self

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its confidence interval, all in the unit of the samples."""

    mean: float
    low: float
    high: float

    @property
    def relative_half_width(self) -> float:
        """Half the interval's width over the mean."""
        return (self.high - self.low) / 2 / self.mean

    def to_json(self) -> dict[str, float | None]:
        """Return `value`, `low` and `high`; None for an unknown end."""
        low, high = (end if math.isfinite(end) else None for end in (self.low, self.high))
        return {"value": self.mean, "low": low, "high": high}

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild an interval from `to_json`; either end may be missing."""
        low, high = mapping.get("low"), mapping.get("high")
        return cls(
            float(mapping["value"]),
            -math.inf if low is None else float(low),
            math.inf if high is None else float(high),
        )


def compose_step_s(
    inner_s: float, boundary_s: float, *, timed_accumulation: int, accumulation: int
) -> float:
    """Compose a whole optimizer step from a short one.

    A trial runs `timed_accumulation` micro steps per optimizer step; the user's job runs
    `accumulation`. Only the last micro step, the boundary, reduces gradients and steps the
    optimizer, so `step = (accumulation - 1) x inner + boundary`.

    Args:
        inner_s: seconds of all timed inner micro steps together; 0 when there are none.
        boundary_s: seconds of the whole boundary micro step: forward, backward and `step`.
        timed_accumulation: micro steps that were timed.
        accumulation: micro steps of the step to compose.

    Raises:
        ValueError: inner micro steps are wanted, none was timed.

    Example:
        >>> compose_step_s(0.2, 0.5, timed_accumulation=2, accumulation=4)
        1.1
    """
    if accumulation == 1:
        return boundary_s
    if timed_accumulation < 2:
        raise ValueError("an inner micro step is needed to compose accumulated steps")
    return inner_s * (accumulation - 1) / (timed_accumulation - 1) + boundary_s


def num_warmup_steps(step_s: Sequence[float]) -> int:
    """Return how many of the first steps are warm-up, by the marginal standard error rule.

    The cut is where the standard error of the remaining mean is smallest, and at most half of
    the steps are cut (MSER: White, "An effective truncation heuristic for bias reduction in
    simulation output", Simulation 69(6), 1997). Slow first steps go; noise stays.

    Example:
        >>> num_warmup_steps([2.0, 1.6, 1.0, 1.1, 1.0, 1.1])
        2
    """
    best_cut, best_error = 0, math.inf
    for cut in range(len(step_s) // 2 + 1):
        rest = step_s[cut:]
        if len(rest) < 2:
            break
        error = stdev(rest) ** 2 * (len(rest) - 1) / len(rest) ** 2
        if error < best_error:
            best_cut, best_error = cut, error
    return best_cut


def mean_interval(samples: Sequence[float]) -> Interval:
    """Return the mean of `samples` with Student's interval at `CONFIDENCE`.

    The spread of one sample is unknown: its interval is the whole positive axis.

    Raises:
        ValueError: no samples.
    """
    mean = fmean(samples)
    if len(samples) < 2:
        return Interval(mean, 0.0, math.inf)
    from scipy.special import stdtrit

    t = float(stdtrit(len(samples) - 1, 0.5 + CONFIDENCE / 2))
    half = t * stdev(samples) / math.sqrt(len(samples))
    return Interval(mean, max(mean - half, 0.0), mean + half)


def slowest_of_s(step_s: Sequence[float], ranks: int) -> float:
    """Return the duration of a step whose ranks wait for the slowest, if all vary like this one.

    The expected maximum of `ranks` draws from `step_s`. Too low where ranks wait for each other
    more than once a step; too high where something slows all of them at the same time.

    Args:
        step_s: one rank's steps, seconds, without the warm-up.
        ranks: how many wait for each other.

    Raises:
        ValueError: no steps.

    Example:
        >>> slowest_of_s([1.0, 2.0], 1), slowest_of_s([1.0, 2.0], 2)
        (1.5, 1.75)
    """
    if not step_s:
        raise ValueError("at least one step is needed")
    count = len(step_s)
    return sum(
        step * (((place + 1) / count) ** ranks - (place / count) ** ranks)
        for place, step in enumerate(sorted(step_s))
    )
