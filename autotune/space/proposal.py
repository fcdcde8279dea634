"""A proposal: one point of the search space, in a form that equal runs share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from autotune.serialization import Serializable

Scalar: TypeAlias = bool | int | float | str
"""A value that a study may try for a key."""

MODEL_PREFIX = "model."
"""Marks settings of the model, which have no key in a ds_config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal(Serializable):
    """The searched keys with their values. Canonical if `SearchSpace.canonical` made it.

    Example:
        >>> Proposal(values={"zero_optimization.stage": 2, "model.activation_checkpointing": True})
        Proposal(zero_optimization.stage=2, model.activation_checkpointing=True)
    """

    values: Mapping[str, Scalar]
    """By dotted ds_config key, or `model.*`."""

    def __hash__(self) -> int:
        return hash(frozenset(self.values.items()))

    def __repr__(self) -> str:
        inside = ", ".join(f"{key}={value}" for key, value in self.values.items())
        return f"Proposal({inside})"

    @property
    def ds_values(self) -> dict[str, Scalar]:
        """The values that go into the ds_config, by dotted key."""
        return {k: v for k, v in self.values.items() if not k.startswith(MODEL_PREFIX)}

    @property
    def model_settings(self) -> dict[str, Scalar]:
        """The values that go into the model, without their prefix."""
        return {
            key.removeprefix(MODEL_PREFIX): value
            for key, value in self.values.items()
            if key.startswith(MODEL_PREFIX)
        }
