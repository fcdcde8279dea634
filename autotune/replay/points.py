"""Points whose outcome is recorded; a replayed search can try only these."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from autotune.space import FloatRange, IntRange, Parameter, SearchSpace
from autotune.space.proposal import Scalar
from autotune.study.candidate import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPoints:
    """The recorded candidates of one workload, by identity."""

    candidates: Mapping[str, Candidate]
    space: SearchSpace
    world_size: int

    @classmethod
    def of(
        cls, candidates: Iterable[Candidate], *, space: SearchSpace, world_size: int
    ) -> "RecordedPoints":
        """Return the points; of two equal runs the first counts."""
        by_identity: dict[str, Candidate] = {}
        for candidate in candidates:
            by_identity.setdefault(candidate.identity(world_size), candidate)
        return cls(candidates=by_identity, space=space, world_size=world_size)

    def contain(self, candidate: Candidate) -> bool:
        """Whether the outcome of a candidate is recorded."""
        return candidate.identity(self.world_size) in self.candidates

    def nearest(self, values: Mapping[str, Scalar], *, known: Collection[str]) -> Candidate | None:
        """Return the recorded candidate nearest to a point, of those that are not known.

        The distance is the mean over the space's parameters: 0 for equal values, 1 for different
        choices or where only one point has the key, and for sizes the fraction of the range, on the
        parameter's scale, between them.

        Args:
            values: a point that the sampler drew.
            known: identities that were tried before.
        """
        left = [c for identity, c in self.candidates.items() if identity not in known]
        if not left:
            return None
        return min(left, key=lambda candidate: self._distance(values, candidate.values))

    def _distance(self, one: Mapping[str, Scalar], other: Mapping[str, Scalar]) -> float:
        return sum(_apart(p, one.get(p.key), other.get(p.key)) for p in self.space.parameters)


def _apart(parameter: Parameter, one: Scalar | None, other: Scalar | None) -> float:
    if one == other:
        return 0.0
    kind = parameter.kind
    if (
        one is None
        or other is None
        or not isinstance(kind, IntRange | FloatRange)
        or isinstance(one, str)
        or isinstance(other, str)
    ):
        return 1.0
    if kind.log:
        return abs(math.log(one / other)) / math.log(kind.high / kind.low)
    return abs(one - other) / (kind.high - kind.low)
