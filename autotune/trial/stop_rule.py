"""Decides when a trial stops. Pure; every rank decides the same from the same numbers."""

from collections.abc import Sequence
from enum import StrEnum

from autotune.study.step_times import mean_interval, num_warmup_steps
from autotune.trial.spec import StepRule

_WARM_UP = 2.0
"""How many times a steady step the first counted step may take: it is the second step, in which
stage 3 still traces. In 111 recorded trials on GPUs it took at most 1.31 times the mean, and the
faster of the first two 1.10 times."""


class Stop(StrEnum):
    """Why the steps ended."""

    TIGHT = "tight"
    """The interval of the mean step time is narrow enough."""
    SLOW = "slow"
    """Even the fastest step is clearly slower than the best trial's."""
    ENOUGH = "enough"
    """The limit of steps or time of the rule is reached."""


def why_stop(step_s: Sequence[float], rule: StepRule) -> Stop | None:
    """Return why no further step is needed, or None.

    Args:
        step_s: seconds of each counted optimizer step so far, the slowest rank's.
        rule: the trial's.
    """
    if rule.slow_step_s is not None and _is_slow(step_s, rule.slow_step_s):
        return Stop.SLOW
    if len(step_s) < rule.min_steps:
        return None
    if len(step_s) >= rule.max_steps or sum(step_s) >= rule.max_s:
        return Stop.ENOUGH
    kept = step_s[num_warmup_steps(step_s) :]
    if len(kept) >= rule.min_steps and mean_interval(kept).relative_half_width <= rule.tight:
        return Stop.TIGHT
    return None


def _is_slow(step_s: Sequence[float], slow_step_s: float) -> bool:
    """Whether no step was fast enough; the first one alone must exceed its warm-up allowance.

    Warm-up only makes steps slower, so the faster of two is a fair estimate.
    """
    return min(step_s) > slow_step_s * (_WARM_UP if len(step_s) == 1 else 1.0)
