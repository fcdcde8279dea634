"""A config to try, and who proposed it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune import dotted
from autotune.ds_config.build import build_ds_config
from autotune.ds_config.identity import identity
from autotune.job.workload import Workload
from autotune.predict.training_job import ModelSettings, Training, read_training
from autotune.serialization import Serializable
from autotune.space import SearchSpace
from autotune.space.proposal import MODEL_PREFIX, Proposal, Scalar
from autotune.study.outcome import Outcome

SAMPLED = "sampled"
PREDICTED = "modelled-best-"
"""Followed by its rank among the fastest points of the speed model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Serializable):
    """A whole ds_config with its model settings."""

    source: str
    """`sampled`, `modelled-best-1`, or the name of the baseline that it is."""
    ds_config: Mapping[str, Any]
    """As a user would run it."""
    model_settings: Mapping[str, Scalar]
    """Settings of the model, for which a ds_config has no key."""
    values: Mapping[str, Scalar] = field(default_factory=dict)
    """The part that lies in the search space, by dotted key."""

    @property
    def is_baseline(self) -> bool:
        """Whether it is what a user would run without a tuner, and not a proposal."""
        return self.source != SAMPLED and not self.is_predicted

    @property
    def is_predicted(self) -> bool:
        """Whether it was proposed by the speed model."""
        return self.source.startswith(PREDICTED)

    def identity(self, world_size: int) -> str:
        """Return a string that is the same for all configs that are the same run."""
        return identity(self.ds_config, self.model_settings, world_size=world_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """A trial as the study stores it."""

    number: int
    candidate: Candidate
    outcome: Outcome | None
    """None while it runs."""
    interrupted: bool = False
    """The driver ended while it ran; it will be asked again."""


def candidate_of_proposal(
    proposal: Proposal, space: SearchSpace, *, base: Mapping[str, Any], workload: Workload
) -> Candidate:
    """Return the candidate of a proposal."""
    searched = [p.key for p in space.parameters if not p.key.startswith(MODEL_PREFIX)]
    return Candidate(
        source=SAMPLED,
        ds_config=build_ds_config(base, workload, proposal.ds_values, searched=searched),
        model_settings=_default_settings(workload) | proposal.model_settings,
        values=dict(proposal.values),
    )


def candidate_of_config(
    name: str,
    ds_config: Mapping[str, Any],
    *,
    space: SearchSpace,
    workload: Workload,
    activation_checkpointing: bool = False,
) -> Candidate:
    """Return a baseline: exactly the given config, inside the space or not.

    Its values are the searched keys whose setting the space holds; the sampler learns from them.
    """
    settings = _default_settings(workload)
    if workload.activation_checkpointing is None:
        settings["activation_checkpointing"] = activation_checkpointing
    values: dict[str, Scalar] = {}
    for parameter in space.parameters:
        if parameter.key.startswith(MODEL_PREFIX):
            value = settings.get(parameter.key.removeprefix(MODEL_PREFIX))
        else:
            value = dotted.get(ds_config, parameter.key)
        if value is not None and parameter.acts(values) and parameter.kind.holds(value):
            values[parameter.key] = value
    return Candidate(source=name, ds_config=ds_config, model_settings=settings, values=values)


def training_of(candidate: Candidate, workload: Workload) -> Training:
    """Return a candidate as the memory and speed models read it.

    Raises:
        AutotuneError: the models cannot read it.
    """
    settings = ModelSettings.of_trial(candidate.model_settings)
    return read_training(candidate.ds_config, workload, settings)


def _default_settings(workload: Workload) -> dict[str, Scalar]:
    return {
        "activation_checkpointing": workload.activation_checkpointing or False,
        "attn_implementation": workload.attn_implementation,
    }
