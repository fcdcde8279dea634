"""Verdicts before a launch, for 7b on 8 H100: predicted as in a study, nothing is ever launched."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.job.device import find_device
from autotune.predict.memory.predict import NCCL_BYTES
from autotune.search.memory_screen import Screen
from autotune.study.model_reports import ScreenReport
from autotune.study.outcome import Phase, PhaseMemory, Status
from autotune.study.rejection import Evidence, Rejection, read_rejections, rejections_attribute
from tests.search.screening import (
    GIB,
    PREDICTED,
    SMALL,
    points,
    ran_out,
    rejection_of,
    simulation,
    teach,
)
from tests.search.setting import tiny_workload
from tests.search.simulated import H100, Simulation, workload_7b


def test_what_is_far_over_is_rejected_and_what_fits_is_launched() -> None:
    here = simulation()
    screen = here.screen()
    verdicts = {
        (stage, micro_batch, checkpointing): screen.judge(
            here.point(stage=stage, mb=micro_batch, ckpt=checkpointing)
        )
        for stage, micro_batch, checkpointing in [
            (0, 1, True),
            (1, 16, False),
            (3, 8, False),
            (3, 1, True),
            (3, 8, True),
            (2, 1, True),
        ]
    }
    rejected = {point for point, rejection in verdicts.items() if rejection is not None}
    assert rejected == {(0, 1, True), (1, 16, False), (3, 8, False)}


@pytest.mark.parametrize(
    ("point", "margin"),
    [
        ({"stage": 3, "mb": 4, "ckpt": True}, 0.03),
        ({"stage": 2, "mb": 2, "ckpt": False}, 0.03),
        (
            {
                "stage": 3,
                "mb": 2,
                "ckpt": False,
                "round_robin_gradients": True,
                "overlap_comm": False,
            },
            0.03,
        ),
    ],
)
def test_what_may_fit_within_the_models_margin_is_launched(
    point: dict[str, int], margin: float
) -> None:
    here = simulation()
    candidate = here.point(**point)
    estimate = here.estimate(candidate)
    border = round(estimate.peak_allocated_bytes * (1 - margin)) + estimate.outside_bytes
    assert simulation(border + 2).screen().judge(candidate) is None
    rejection = rejection_of(simulation(border - 2).screen(), candidate)
    assert rejection.evidence is Evidence.REPLAY
    assert rejection.needed_bytes == estimate.peak_allocated_bytes + estimate.outside_bytes
    assert rejection.margin == margin
    assert f"predicted to need {rejection.needed_bytes / GIB:.2f} GiB (+-{margin:.1%})" in (
        rejection.reason
    )


@settings(deadline=None, max_examples=40)
@given(
    number=st.integers(0, 299),
    error=st.floats(-1, 1),
    spare=st.floats(0, 0.3),
    bias=st.sampled_from([-0.06, 0.0, 0.06]),
)
def test_nothing_that_fits_is_rejected_while_the_model_errs_within_its_margin(
    number: int, error: float, spare: float, bias: float
) -> None:
    here = Simulation(workload=SMALL, ceiling_bytes=78 * GIB, bias=bias, predicted=PREDICTED)
    candidate = points(3, 300)[number]
    screen = here.screen()
    if bias:
        teach(screen, here)
    estimate = here.estimate(candidate)
    margin = screen.calibration.margin(estimate.margin)
    true_bytes = (
        estimate.peak_allocated_bytes * (1 + bias) * (1 + error * margin) + estimate.outside_bytes
    )
    screen.ceiling_bytes = round(true_bytes * (1 + spare)) + 1
    assert screen.judge(candidate) is None


@pytest.mark.parametrize("num_layers", [1, 3, 12])
def test_what_the_closed_form_is_sure_of_is_never_above_the_replay(num_layers: int) -> None:
    """It was at most 0.999 times the replay's peak; with buckets and gathers up to 50 times."""
    here = Simulation(workload=workload_7b(num_layers=num_layers), ceiling_bytes=78 * GIB)
    for candidate in points(num_layers, 120):
        by_formula = rejection_of(replace(here.screen(), ceiling_bytes=1), candidate)
        assert by_formula.evidence is Evidence.CLOSED_FORM
        sure_bytes = by_formula.needed_bytes - by_formula.outside_bytes
        assert sure_bytes <= here.estimate(candidate).peak_allocated_bytes


def test_a_bucket_larger_than_the_model_is_not_rejected() -> None:
    # Without contiguous gradients nothing is allocated in its size.
    here = Simulation(workload=workload_7b(num_layers=1), ceiling_bytes=8 * GIB)
    candidate = here.point(
        stage=1, mb=1, ckpt=True, reduce_bucket_size=920_000_000, contiguous_gradients=False
    )
    assert here.fits(candidate)
    assert here.screen().judge(candidate) is None


def test_a_model_that_is_low_rejects_more_once_it_is_corrected() -> None:
    here = simulation(bias=0.06)
    candidate = here.point(stage=2, mb=8, ckpt=True)
    estimate = here.estimate(candidate)
    screen = here.screen()
    screen.ceiling_bytes = (
        estimate.peak_allocated_bytes + estimate.outside_bytes
    )  # it just fits, it seems
    teach(screen, here, num_trials=2)
    assert screen.judge(candidate) is None
    teach(screen, here, num_trials=3)
    assert rejection_of(screen, candidate).evidence is Evidence.REPLAY
    assert screen.report().worst_error == pytest.approx(-0.06 / 1.06, rel=1e-3)


def test_a_model_that_is_high_takes_rejections_back_once_it_is_corrected() -> None:
    here = simulation(bias=-0.06)
    candidate = here.point(stage=2, mb=8, ckpt=True)
    far = here.point(stage=0, mb=4, ckpt=False)
    estimate = here.estimate(candidate)
    screen = here.screen()
    screen.ceiling_bytes = round(estimate.peak_allocated_bytes * 0.96) + estimate.outside_bytes
    screen.rejections += [rejection_of(screen, candidate), rejection_of(screen, far)]
    assert screen.report().num_taken_back == 0
    teach(screen, here)
    assert screen.judge(candidate) is None
    assert rejection_of(screen, far)
    report = screen.report()
    assert report.num_rejected == 2
    assert report.num_taken_back == 1
    assert report.num_compared == 3
    assert report.mean_error == pytest.approx(0.06 / 0.94, rel=1e-3)


def test_a_rejection_by_formula_is_taken_back_only_if_the_model_was_very_wrong() -> None:
    here = simulation()
    candidate = here.point(stage=0, mb=1, ckpt=True)
    for factor, num_taken_back in ((0.95, 0), (0.5, 1)):
        screen = here.screen()
        screen.rejections.append(rejection_of(screen, candidate))
        assert screen.rejections[0].evidence is Evidence.CLOSED_FORM
        teach(screen, replace(here, bias=factor - 1))
        assert screen.report().num_taken_back == num_taken_back


def test_trials_that_were_over_the_ceiling_correct_the_model_too_where_they_were_measured() -> None:
    here = simulation(bias=0.06)
    candidate = here.point(stage=3, mb=1, ckpt=True)
    complete = here.outcome(candidate)
    over = replace(ran_out(here), measurement=complete.measurement)
    screen = here.screen()
    for outcome in (complete, over, ran_out(here)):
        screen.learn(candidate, outcome)
    assert screen.report().num_compared == 2


def test_what_lies_outside_the_allocator_is_taken_from_the_trials() -> None:
    # The catalogue's NCCL buffers are the most that was ever seen; here they are half of it.
    here = simulation()
    candidate = here.point(stage=2, mb=8, ckpt=True)
    estimate = here.estimate(candidate)
    screen = here.screen()
    screen.ceiling_bytes = (
        estimate.outside_bytes + round(estimate.peak_allocated_bytes * 0.97) - NCCL_BYTES // 4
    )
    rejection = rejection_of(screen, candidate)
    screen.rejections.append(rejection)
    seen = here.point(stage=3, mb=1, ckpt=True)
    complete = here.outcome(seen)
    ranks = tuple(
        replace(
            rank,
            memory=tuple(
                replace(m, used_bytes=m.used_bytes - NCCL_BYTES // 2) for m in rank.memory
            ),
        )
        for rank in complete.measured.ranks
    )
    screen.learn(seen, replace(complete, measurement=replace(complete.measured, ranks=ranks)))
    assert screen.judge(candidate) is None
    assert screen.report().num_taken_back == 1


def test_a_peak_of_the_initialisation_is_not_compared_with_the_steps() -> None:
    here = simulation()
    candidate = here.point(stage=3, mb=1, ckpt=True)
    outcome = here.outcome(candidate)
    measured = outcome.measured
    used = 2 * measured.peak_bytes
    flattening = PhaseMemory(
        phase=Phase.INIT, used_bytes=used, allocated_bytes=used, reserved_bytes=used
    )
    ranks = tuple(replace(r, memory=(flattening, *r.memory)) for r in measured.ranks)
    screen = here.screen()
    screen.learn(candidate, replace(outcome, measurement=replace(measured, ranks=ranks)))
    assert screen.report().worst_error == pytest.approx(0, abs=1e-6)


def test_what_an_emulated_rank_lacks_outside_the_allocator_is_added_to_what_it_holds() -> None:
    here = simulation()
    seen = here.point(stage=3, mb=1, ckpt=True)
    complete = here.outcome(seen)
    held = [
        tuple(replace(m, used_bytes=m.used_bytes - NCCL_BYTES) for m in rank.memory)
        for rank in complete.measured.ranks
    ]
    ranks = tuple(
        replace(rank, memory=memory)
        for rank, memory in zip(complete.measured.ranks, held, strict=True)
    )
    alone = replace(complete, measurement=replace(complete.measured, ranks=ranks))
    candidate = here.point(stage=2, mb=8, ckpt=True)
    estimate = here.estimate(candidate)
    for charged_bytes, is_rejected in ((NCCL_BYTES, True), (0, False)):
        screen = here.screen()
        screen.ceiling_bytes = (
            estimate.outside_bytes + round(estimate.peak_allocated_bytes * 0.97) - NCCL_BYTES // 2
        )
        screen.learn(seen, replace(alone, charged_bytes=charged_bytes))
        assert (screen.judge(candidate) is not None) == is_rejected


def test_surprises_are_trials_that_ran_out_although_they_fit_with_the_margin() -> None:
    here = simulation()
    candidate = here.point(stage=3, mb=4, ckpt=True)
    estimate = here.estimate(candidate)
    for share, num_surprises in ((1.04, 1), (1.02, 0)):
        screen = here.screen()
        screen.ceiling_bytes = round(estimate.peak_allocated_bytes * share) + estimate.outside_bytes
        screen.learn(candidate, ran_out(here))
        assert screen.report().num_surprises == num_surprises


@pytest.mark.parametrize(
    "odd",
    [
        {"zero_optimization": {"stage": 7}},
        {"zero_optimization": {"stage": "three"}},
        {"zero_optimization": {"stage": 2, "reduce_bucket_size": [1]}},
        {"bf16": {"enabled": True}, "fp16": {"enabled": True}},
        {"train_micro_batch_size_per_gpu": "many"},
        {"data_types": {"grad_accum_dtype": "int3"}},
    ],
)
def test_a_config_that_the_model_cannot_read_is_launched(odd: dict[str, object]) -> None:
    here = simulation(1 * GIB)  # nothing that it can read fits
    known = here.point(stage=3, mb=1, ckpt=True)
    candidate = replace(known, ds_config={**known.ds_config, **odd})
    screen = here.screen()
    assert screen.judge(candidate) is None
    screen.learn(candidate, ran_out(here))


def test_a_cpu_rank_holds_nothing_outside_its_allocator() -> None:
    workload = tiny_workload()
    screen = Screen(workload=workload, device=find_device("cpu"), ceiling_bytes=2**20)
    here = Simulation(workload=workload, ceiling_bytes=2**20, device=find_device("cpu"))
    candidate = here.point(stage=1, mb=1, ckpt=False, reduce_bucket_size=100_000)
    rejection = rejection_of(screen, candidate)
    assert rejection.outside_bytes == 0
    assert rejection.needed_bytes < 200 * 2**20  # a context alone is more
    on_h100 = replace(screen, device=H100)
    assert rejection_of(on_h100, candidate).outside_bytes > 2**30


def test_a_cpu_trial_is_not_compared_since_it_has_no_allocator() -> None:
    workload = tiny_workload()
    here = Simulation(workload=workload, ceiling_bytes=2**40, device=find_device("cpu"))
    candidate = here.point(stage=1, mb=1, ckpt=False)
    outcome = here.outcome(candidate)
    ranks = tuple(
        replace(
            rank,
            memory=tuple(
                replace(m, allocated_bytes=None, reserved_bytes=None) for m in rank.memory
            ),
        )
        for rank in outcome.measured.ranks
    )
    screen = here.screen()
    screen.learn(candidate, replace(outcome, measurement=replace(outcome.measured, ranks=ranks)))
    assert screen.report().num_compared == 0
    assert screen.report().mean_error is None


def test_a_rejection_and_a_report_survive_json() -> None:
    here = simulation()
    rejection = rejection_of(here.screen(), here.point(stage=0, mb=1, ckpt=True))
    assert Rejection.from_json(json.loads(json.dumps(rejection.to_json()))) == rejection
    screen = here.screen()
    teach(screen, here)
    report = screen.report()
    assert ScreenReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_rejections_are_read_in_the_order_they_were_stored() -> None:
    here = simulation()
    one = rejection_of(here.screen(), here.point(stage=0, mb=1, ckpt=True))
    all_ = [replace(one, reason=str(index)) for index in range(25)]
    attributes = {
        rejections_attribute(first): [r.to_json() for r in all_[first : first + 9]]
        for first in (18, 0, 9)
    }
    assert read_rejections(attributes | {"setup": {}}) == all_
    assert read_rejections({}) == []


def test_the_outcome_of_a_rejection_does_not_fit_and_has_a_reason() -> None:
    here = simulation()
    rejection = rejection_of(here.screen(), here.point(stage=0, mb=1, ckpt=True))
    outcome = rejection.outcome()
    assert outcome.status is Status.REJECTED
    assert outcome.status.does_not_fit
    assert outcome.evaluator == "modelled"
    assert outcome.failure is not None
    assert outcome.failure.needed_bytes == rejection.needed_bytes
    assert "of a ceiling of 72.00 GiB" in outcome.failure.reason


def test_a_job_that_fits_but_for_fragmentation_is_rejected() -> None:
    here = simulation()
    candidate = here.point(stage=3, mb=4, ckpt=True)
    estimate = here.estimate(candidate)
    ceiling_bytes = round(estimate.peak_allocated_bytes * 1.005) + estimate.outside_bytes
    screen = replace(simulation(ceiling_bytes).screen(), expandable_segments=False)
    assert rejection_of(screen, candidate).evidence is Evidence.FRAGMENTATION
    assert replace(screen, expandable_segments=True).judge(candidate) is None
    reserved_bytes = estimate.peak_reserved_bytes
    assert reserved_bytes is not None
    roomy = replace(screen, ceiling_bytes=reserved_bytes + estimate.outside_bytes)
    assert roomy.judge(candidate) is None
