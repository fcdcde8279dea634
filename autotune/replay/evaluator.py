"""The replay evaluator: recorded outcomes, without any device."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.ds_config.identity import identity
from autotune.errors import DispatchError
from autotune.evaluate import OnMark, TrialRequest
from autotune.study.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayEvaluator:
    """Answers with what was recorded; outcomes keep the name of the evaluator that made them."""

    outcomes: Mapping[str, Outcome]
    """By the identity of the config (`autotune.ds_config.identity`)."""
    world_size: int

    @property
    def name(self) -> str:
        """What a study of replayed trials calls its evaluator."""
        return "replay"

    @property
    def capacity(self) -> int:
        """One: a replay takes no time, and in order it gives the same every time."""
        return 1

    def evaluate(self, request: TrialRequest, on_mark: OnMark) -> Outcome:
        """Look the trial up.

        Raises:
            DispatchError: it was not recorded.
        """
        del on_mark
        same_run = identity(request.ds_config, request.model_settings, world_size=self.world_size)
        if same_run not in self.outcomes:
            raise DispatchError(
                f"{request.label}: no such run was recorded; a replay can only try what was"
            )
        return self.outcomes[same_run]

    def cancel(self) -> None:
        """Do nothing: no trial is ever running."""
