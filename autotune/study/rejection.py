"""A candidate that is not launched, and the evidence against it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.serialization import Serializable
from autotune.study.candidate import Candidate
from autotune.study.outcome import Failure, Outcome, Status

_CHUNK = "rejections-"


class Evidence(StrEnum):
    """What a rejection is based on."""

    CLOSED_FORM = "closed form"
    REPLAY = "replay"
    FRAGMENTATION = "fragmentation"
    """A replay under the ceiling: the live tensors fit, the allocator's blocks do not."""
    HOST = "host"
    """The node has too little memory for its ranks: final, no trial corrects this prediction."""
    TRIAL = "trial"
    """A trial that needs no more memory ran out: final, whatever the model learns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection(Serializable):
    """A candidate that was not launched."""

    candidate: Candidate
    evidence: Evidence
    needed_bytes: int
    """Predicted and not corrected; memory outside the allocator included."""
    outside_bytes: int
    """Of these, the bytes outside the allocator."""
    margin: float
    """The model's own, of the allocator's part."""
    reason: str

    def outcome(self) -> Outcome:
        """Return the outcome of a trial that never ran."""
        return Outcome(
            status=Status.REJECTED,
            evaluator=EvaluatorKind.MODELLED.value,
            failure=Failure(reason=self.reason, needed_bytes=self.needed_bytes),
        )


def read_rejections(attributes: Mapping[str, Any]) -> list[Rejection]:
    """Return the rejections that are stored with a study, in order."""
    chunks = sorted(name for name in attributes if name.startswith(_CHUNK))
    return [Rejection.from_json(mapping) for name in chunks for mapping in attributes[name]]


def rejections_attribute(num_before: int) -> str:
    """Return the study attribute that holds the rejections after the first `num_before`.

    One per launch: a single list would be rewritten every time, and soon exceed the largest value
    of a storage.
    """
    return f"{_CHUNK}{num_before:06d}"
