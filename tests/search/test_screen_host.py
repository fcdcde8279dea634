"""Verdicts before a launch on what the ranks of a node share: its memory. Nothing is launched."""

import pytest

from autotune.predict.memory.estimate import HostEstimate
from autotune.predict.memory.predict import Surroundings, predict_memory
from autotune.search.memory_screen import Screen
from autotune.study.candidate import Candidate, training_of
from autotune.study.rejection import Evidence, Rejection
from tests.search.screening import GIB, simulation, teach
from tests.search.simulated import H100

HERE = simulation()
OFFLOADED = HERE.point(stage=2, mb=1, ckpt=True, offload="cpu")
ON_DEVICE = HERE.point(stage=2, mb=1, ckpt=True, offload="none")


def screen(host_bytes: int | None) -> Screen:
    screen = HERE.screen()
    screen.host_bytes, screen.local_ranks = host_bytes, 8
    return screen


def host_bill(candidate: Candidate) -> HostEstimate:
    around = Surroundings(device=H100, local_ranks=8)
    return predict_memory(training_of(candidate, HERE.workload), around).host


def test_offload_that_a_node_has_no_memory_for_is_not_launched() -> None:
    estimate = host_bill(OFFLOADED)
    assert estimate.total_bytes > 50 * GIB
    small = screen(estimate.total_bytes // 2)
    rejection = small.judge(OFFLOADED)
    assert rejection is not None
    assert rejection.evidence is Evidence.HOST
    assert rejection.reason == (
        f"predicted to need {estimate.total_bytes / GIB:.2f} GiB (+-{estimate.margin:.0%}) of host "
        f"memory for 8 ranks of a node, which has {estimate.total_bytes // 2 / GIB:.2f} GiB"
    )
    assert not small.may_fit(OFFLOADED)
    assert small.judge(ON_DEVICE) is None
    assert small.may_fit(ON_DEVICE)


def test_a_node_of_unknown_memory_is_not_judged() -> None:
    assert screen(None).judge(OFFLOADED) is None
    assert screen(None).may_fit(OFFLOADED)


@pytest.mark.parametrize(("share", "launched"), [(0.96, True), (1.0, True), (0.8, False)])
def test_what_may_fit_within_the_model_s_margin_is_launched(
    share: float, *, launched: bool
) -> None:
    estimate = host_bill(OFFLOADED)
    assert estimate.margin == pytest.approx(0.05)
    judged = screen(round(estimate.total_bytes * share)).judge(OFFLOADED)
    assert (judged is None) is launched


def test_no_trial_takes_it_back() -> None:
    small = screen(host_bill(OFFLOADED).total_bytes // 2)
    rejection = small.judge(OFFLOADED)
    assert rejection is not None
    small.rejections.append(rejection)
    teach(small, HERE)
    assert small.report().num_taken_back == 0
    assert Rejection.from_json(rejection.to_json()) == rejection


def test_the_outcome_has_the_reason_and_the_predicted_need() -> None:
    rejection = screen(10 * GIB).judge(OFFLOADED)
    assert rejection is not None
    outcome = rejection.outcome()
    assert outcome.failure is not None
    assert "host memory" in outcome.failure.reason
    # That would fit: it is no excess over the ceiling that the search should learn.
    assert outcome.failure.needed_bytes is not None
    assert outcome.failure.needed_bytes < HERE.ceiling_bytes
