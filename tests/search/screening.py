"""Screens of simulated studies, 7b on 8 H100, and what they are taught."""

import itertools
from functools import cache

from autotune.predict.memory.estimate import DeviceEstimate
from autotune.search.memory_screen import Screen
from autotune.study.candidate import Candidate, candidate_of_proposal
from autotune.study.outcome import Outcome, Phase, Status
from autotune.study.rejection import Rejection
from autotune.study.store import StoredStudy
from tests.evaluate.fake import FakeEvaluator
from tests.search.simulated import Simulation, workload_7b

GIB = 2**30
WORKLOAD = workload_7b()
SMALL = workload_7b(num_layers=3)
"""As wide as 7b, so that the items weigh alike, but replayed in a few milliseconds."""
PREDICTED: dict[str, DeviceEstimate] = {}
PREDICTED_7B: dict[str, DeviceEstimate] = {}


def simulation(ceiling_bytes: int = 72 * GIB, *, bias: float = 0.0) -> Simulation:
    return Simulation(
        workload=WORKLOAD, ceiling_bytes=ceiling_bytes, bias=bias, predicted=PREDICTED_7B
    )


@cache
def points(num_layers: int, num: int) -> tuple[Candidate, ...]:
    """Return points from all over the default space."""
    here = Simulation(workload=workload_7b(num_layers=num_layers), ceiling_bytes=78 * GIB)
    study = StoredStudy("s", "sqlite:///:memory:", create=True)
    drawn = itertools.islice(study.suggestions(here.space, seed=5), num)
    points = tuple(
        candidate_of_proposal(here.space.canonical(v), here.space, base={}, workload=here.workload)
        for v in drawn
    )
    study.close()
    return points


def teach(screen: Screen, here: Simulation, num_trials: int = 3) -> None:
    """Let the screen see complete trials."""
    for micro_batch in (1, 2, 4)[:num_trials]:
        candidate = here.point(stage=3, mb=micro_batch, ckpt=True)
        outcome = here.outcome(candidate)
        assert outcome.status is Status.COMPLETE
        screen.learn(candidate, outcome)


def ran_out(here: Simulation, phase: Phase = Phase.FIRST_STEP) -> Outcome:
    evaluator = FakeEvaluator(workload=here.workload, ceiling_bytes=here.ceiling_bytes)
    return evaluator.failed(Status.OVER_CEILING, "as if", phase=phase)


def rejection_of(screen: Screen, candidate: Candidate) -> Rejection:
    rejection = screen.judge(candidate)
    assert rejection is not None
    return rejection
