"""The constraints of a trial, which the sampler reads beside its value. Pure."""

from collections.abc import Mapping

from autotune.study.outcome import Outcome, Status

_LEAST_EXCESS = 1e-3
"""A trial that does not fit is infeasible, however small its excess."""


def constraints_of(
    outcome: Outcome, *, ceiling_bytes: int, predicted_bytes: float | None = None
) -> Mapping[str, float]:
    """Return Optuna's constraints: a positive one means infeasible.

    `memory` is the relative excess over the ceiling, at most 0 for a trial that fits. `valid` is 1
    for a config that must not be used, whatever it needs.

    Args:
        outcome: how the trial ended.
        ceiling_bytes: the most that a rank may use.
        predicted_bytes: what the trial was predicted to need. Under an enforced ceiling the
            allocator falls short by one allocation only, so the larger of the two counts.
    """
    if outcome.status in (Status.INVALID, Status.DIVERGED):
        return {"valid": 1.0}
    if outcome.status.does_not_fit:
        needed = (outcome.failure and outcome.failure.needed_bytes) or 0
        most = max(needed + outcome.charged_bytes if needed else 0, predicted_bytes or 0)
        return {"memory": max(most / ceiling_bytes - 1, _LEAST_EXCESS)}
    if outcome.has_numbers:
        peak = outcome.peak_bytes + outcome.charged_bytes
        return {"memory": min(peak / ceiling_bytes - 1, 0.0)}
    return {}
