"""Does a job fit: the odds, and the answer that they give."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.job.ceiling import GIB
from autotune.job.device import find_device
from autotune.predict.memory.estimate import DeviceEstimate
from autotune.predict.memory.fit import SURE, UNLIKELY, Answer, Fit, predict_fit
from autotune.predict.memory.predict import Surroundings, predict_memory
from autotune.predict.training_job import Training
from tests.predict.jobs import job, small_llama

H100 = find_device("h100")


def needs_of(training: Training) -> DeviceEstimate:
    """Return the need of a rank, with the least that its allocator must be allowed."""
    return predict_memory(training, Surroundings(device=H100), find_limit=True).device


def roomy_bytes(needs: DeviceEstimate) -> int:
    """Return a limit with room for fragmentation and for the prediction's error."""
    assert needs.limit_bytes is not None
    return round(needs.limit_bytes * (1 + needs.margin)) + needs.outside_bytes


def fit_under(training: Training, limit_bytes: int, **options: Any) -> Fit:
    """Return whether a job fits under a limit."""
    return predict_fit(training, Surroundings(device=H100, ceiling_bytes=limit_bytes), **options)


def test_a_job_with_room_for_the_error_fits_for_certain() -> None:
    training = job({"stage": 2})
    fit = fit_under(training, roomy_bytes(needs_of(training)))
    assert (fit.answer, fit.odds) == (Answer.FITS, SURE)
    assert not fit.is_pressed


def test_a_job_that_fits_only_if_the_prediction_is_right_is_not_certain() -> None:
    training = job({"stage": 2})
    needs = needs_of(training)
    assert needs.limit_bytes is not None
    fit = fit_under(training, needs.limit_bytes + needs.outside_bytes)
    assert UNLIKELY < fit.odds < SURE
    assert fit.answer is Answer.FITS


def test_a_job_whose_peak_is_above_the_limit_does_not_fit() -> None:
    training = job({"stage": 2})
    fit = fit_under(training, needs_of(training).peak_allocated_bytes)
    assert fit.device_answer is fit.answer is Answer.DOES_NOT_FIT
    assert fit.device_odds < 1 / 2


def test_far_above_the_limit_the_odds_are_the_least() -> None:
    training = job({"stage": 2})
    fit = fit_under(training, needs_of(training).peak_allocated_bytes // 2)
    assert fit.device_odds == UNLIKELY


def test_a_job_that_gives_back_cache_in_every_step_fits_and_is_pressed() -> None:
    training = job({"stage": 3}, model="7b")
    needs = needs_of(training)
    spare = roomy_bytes(needs) - needs.peak_allocated_bytes
    fit = fit_under(training, roomy_bytes(needs) - spare // 8)
    assert fit.answer is Answer.FITS
    assert fit.is_pressed


def test_a_host_that_is_too_small_decides_too() -> None:
    training = job({"stage": 2, "offload_optimizer": {"device": "cpu"}})
    surroundings = Surroundings(device=H100, ceiling_bytes=70 * GIB, host_bytes=2 * GIB)
    fit = predict_fit(training, surroundings)
    assert fit.device_answer is Answer.FITS
    assert fit.host_answer is fit.answer is Answer.DOES_NOT_FIT
    assert fit.odds == fit.host_odds < 1 / 2


def test_a_host_that_is_not_known_is_not_judged() -> None:
    training = job({"stage": 2, "offload_optimizer": {"device": "cpu"}})
    assert fit_under(training, 70 * GIB).host_odds == 1


def test_of_an_assumed_shape_only_certain_odds_are_an_answer() -> None:
    training = job({"stage": 2})
    needs = needs_of(training)
    middle = needs.peak_allocated_bytes + needs.outside_bytes
    answers = [
        fit_under(training, limit_bytes, unsure=2 / 3).answer
        for limit_bytes in (2 * middle, middle, middle // 4)
    ]
    assert answers == [Answer.FITS, Answer.NOT_JUDGED, Answer.DOES_NOT_FIT]
    assert fit_under(training, middle).answer is not Answer.NOT_JUDGED


def test_what_may_be_missing_widens_the_low_end_only() -> None:
    training = job({"stage": 2})
    sure, unsure = (fit_under(training, 70 * GIB, unsure=share) for share in (0.0, 2 / 3))
    assert unsure.low_bytes < sure.low_bytes < sure.predicted_bytes < sure.high_bytes
    assert (unsure.predicted_bytes, unsure.high_bytes) == (sure.predicted_bytes, sure.high_bytes)


@settings(deadline=None, max_examples=30)
@given(shares=st.tuples(st.floats(0.3, 2), st.floats(0.3, 2)).map(sorted))
def test_a_larger_limit_never_lowers_the_odds(shares: list[float]) -> None:
    training = job({"stage": 2}, model=small_llama(), ranks=2)
    needed = predict_memory(training, Surroundings(device=H100)).device.peak_allocated_bytes + GIB
    smaller, larger = (fit_under(training, round(needed * share)) for share in shares)
    assert smaller.device_odds <= larger.device_odds
