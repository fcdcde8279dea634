"""The replay evaluator: recorded outcomes, without a device."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.ds_config.identity import identity
from autotune.errors import DispatchError
from autotune.evaluate import OnMark, TrialRequest
from autotune.study.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayEvaluator:
    """Returns recorded outcomes; they keep the name of the evaluator that made them."""

    outcomes: Mapping[str, Outcome]
    """By the identity of the config (`autotune.ds_config.identity`)."""
    world_size: int

    @property
    def name(self) -> str:
        """The evaluator's name in a study of replayed trials."""
        return "replay"

    @property
    def capacity(self) -> int:
        """One: a replay takes no time, and running in order makes it deterministic."""
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
                f"{request.label}: not a recorded run; a replay can only try recorded runs"
            )
        return self.outcomes[same_run]

    def cancel(self) -> None:
        """Do nothing: a replayed trial ends at once."""
