"""Finds fast points of a space with the speed model, in a second or two."""

import math
import random
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from autotune import dotted
from autotune.ds_config.build import MICRO_BATCH
from autotune.search.memory_screen import Screen
from autotune.search.speed_model import SpeedModel
from autotune.space import Choices, IntRange, Parameter, SearchSpace
from autotune.space.proposal import Proposal, Scalar
from autotune.study.candidate import Candidate, candidate_of_proposal

MAX_DRAWN = 200
"""Points whose memory the closed form predicts: a millisecond or two each."""
MAX_PREDICTED = 80
"""Points whose speed is predicted, of those that may fit: 5 to 15 ms each."""
_MAX_DRAWS = 2_000
"""A small space has fewer new points than this."""


def fastest_first(
    space: SearchSpace,
    *,
    base: Mapping[str, Any],
    seed: int,
    screen: Screen,
    speed: SpeedModel,
) -> Iterator[Candidate]:
    """Yield points of a space that fit by the closed form, the fastest by the model first.

    The points depend on the seed only; their order is that of the model, corrected by the trials so
    far.

    Args:
        space: bound to the workload.
        base: the user's ds_config.
        seed: of the points that are drawn.
        screen: predicts which points may fit.
        speed: predicts their speed.
    """
    drawn = (
        candidate_of_proposal(proposal, space, base=base, workload=speed.workload)
        for proposal in islice(draw_proposals(space, seed=seed), MAX_DRAWN)
    )
    fitting = islice(filter(screen.may_fit, drawn), MAX_PREDICTED)
    predicted = ((candidate, speed.corrected(candidate)) for candidate in fitting)
    ranked = [(c, p.tokens_per_s) for c, p in predicted if p is not None]
    ranked.sort(key=lambda pair: -pair[1])
    return (candidate for candidate, _ in ranked)


def draw_proposals(space: SearchSpace, *, seed: int) -> Iterator[Proposal]:
    """Yield different points of a space at random, in canonical form."""
    dice = random.Random(seed)
    seen = set()
    for _ in range(_MAX_DRAWS):
        values: dict[str, Scalar] = {}
        for parameter in space.parameters:
            if parameter.acts(values):
                values[parameter.key] = _draw(dice, parameter)
        proposal = space.canonical(values)
        if proposal not in seen:
            seen.add(proposal)
            yield proposal


def coarse(candidate: Candidate) -> tuple[Any, Any]:
    """Return what distinguishes candidates most: stage and micro batch."""
    config = candidate.ds_config
    return dotted.get(config, "zero_optimization.stage", 0), config[MICRO_BATCH]


def _draw(dice: random.Random, parameter: Parameter) -> Scalar:
    kind = parameter.kind
    if isinstance(kind, Choices):
        return dice.choice(kind.values)
    if kind.log:
        drawn = math.exp(dice.uniform(math.log(kind.low), math.log(kind.high)))
    else:
        drawn = dice.uniform(kind.low, kind.high)
    if not isinstance(kind, IntRange):
        return parameter.snap(min(max(drawn, kind.low), kind.high))
    steps = round((drawn - kind.low) / kind.step)
    return parameter.snap(min(kind.low + steps * kind.step, kind.high))
