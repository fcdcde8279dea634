"""Evaluators turn trials into outcomes: one protocol, several implementations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from autotune.study.outcome import Outcome, Phase

CLEARLY_SLOWER = 1.25
"""A trial whose fastest step takes this many times the best trial's mean step is stopped."""
OnMark = Callable[[str, int, Phase, str], None]
"""Receives progress marks: the trial's label, rank, phase, and the position in the phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """What to evaluate, and how long."""

    number: int
    label: str
    """The name of its logs: `trial-0007`."""
    ds_config: Mapping[str, Any]
    """The whole config, as a user would run it."""
    model_settings: Mapping[str, Any]
    """Settings of the model: `activation_checkpointing`, `attn_implementation`."""
    best_tokens_per_s: float | None = None
    """Stop early if clearly slower than this; None runs to the end."""
    whole_steps: bool = False
    """Run every micro step of the user's optimizer step instead of composing it."""
    same_weights: bool = False
    """Start from weights that depend on their names only, so that losses can be compared."""


class Evaluator(Protocol):
    """Turns trials into outcomes. A failed trial is an outcome, never an exception."""

    @property
    def name(self) -> str:
        """measured, emulated or modelled: printed beside every number."""

    @property
    def capacity(self) -> int:
        """How many trials may be evaluated at once."""

    def evaluate(self, request: TrialRequest, on_mark: OnMark) -> Outcome:
        """Evaluate one trial; blocks, and may be called from `capacity` threads.

        Raises:
            DispatchError: the pool failed, not the trial.
        """

    def cancel(self) -> None:
        """End running trials within about a second; their outcomes are meaningless."""
