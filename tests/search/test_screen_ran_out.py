"""A trial that ran out of memory rejects candidates that need as much."""

from dataclasses import replace

import pytest

from autotune.study.outcome import Phase, Status
from autotune.study.rejection import Evidence
from tests.search.screening import GIB, PREDICTED_7B, WORKLOAD, ran_out, rejection_of, teach
from tests.search.simulated import Simulation

RAN_OUT = {"stage": 3, "mb": 4, "ckpt": False, "reduce_bucket_size": 100_000_000}


@pytest.mark.parametrize(
    ("change", "is_rejected"),
    [
        ({"mb": 8}, True),
        ({"mb": 16}, True),
        ({"mb": 32}, True),
        # As much of everything, but within the noise of fragmentation: 1.6 % more in all.
        ({"reduce_bucket_size": 400_000_000}, False),
        ({}, False),
        # Far more in all, yet less of one item (cases/reports.md L06).
        ({"mb": 8, "reduce_bucket_size": 1_000_000}, False),
        ({"mb": 2}, False),
        ({"ckpt": True}, False),
    ],
)
def test_a_trial_that_ran_out_rejects_what_needs_as_much_of_everything_and_clearly_more_in_all(
    change: dict[str, int], is_rejected: bool
) -> None:
    # The model predicts that all of them fit: only the trial rejects them.
    here = Simulation(workload=WORKLOAD, ceiling_bytes=400 * GIB, predicted=PREDICTED_7B)
    screen = here.screen()
    candidate = here.point(**RAN_OUT | change)
    assert screen.judge(candidate) is None
    screen.learn(here.point(**RAN_OUT), ran_out(here))
    rejection = screen.judge(candidate)
    assert (rejection is not None) == is_rejected
    if rejection is not None:
        assert rejection.evidence is Evidence.TRIAL
        assert "as a trial that ran out" in rejection.reason


def test_a_rejection_by_a_trial_stands_whatever_the_model_learns() -> None:
    here = Simulation(workload=WORKLOAD, ceiling_bytes=400 * GIB, predicted=PREDICTED_7B)
    screen = here.screen()
    screen.learn(here.point(**RAN_OUT), ran_out(here))
    screen.rejections.append(rejection_of(screen, here.point(**RAN_OUT | {"mb": 8})))
    teach(screen, here)
    assert screen.report().num_taken_back == 0


def test_a_trial_that_ran_out_in_initialize_does_not_limit_micro_batches() -> None:
    here = Simulation(workload=WORKLOAD, ceiling_bytes=400 * GIB, predicted=PREDICTED_7B)
    screen = here.screen()
    screen.learn(here.point(**RAN_OUT), ran_out(here, Phase.INIT))
    assert screen.judge(here.point(**RAN_OUT | {"mb": 8})) is None


@pytest.mark.parametrize("status", [Status.CRASHED, Status.OOM_HOST, Status.TIMED_OUT])
def test_a_trial_that_failed_otherwise_rejects_nothing(status: Status) -> None:
    here = Simulation(workload=WORKLOAD, ceiling_bytes=400 * GIB, predicted=PREDICTED_7B)
    screen = here.screen()
    screen.learn(here.point(**RAN_OUT), replace(ran_out(here), status=status))
    assert screen.judge(here.point(**RAN_OUT | {"mb": 8})) is None
    assert screen.report().num_surprises == 0
