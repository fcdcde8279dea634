import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import median

import pytest

from autotune.predict.speed_calibration import HOSTS, LEAST_WIDTH, SpeedCalibration, TimedTrial
from autotune.predict.throughput import SpeedSurroundings, predict_throughput
from autotune.predict.training_job import Training
from tests.predict.jobs import job
from tests.predict.rows import H200
from tests.predict.throughput.timed import Timed, landscape, pairs

AROUND = SpeedSurroundings.of(H200, local_ranks=8)
WAITS_FOR_THE_HOST = (job({"stage": 3}), job({"stage": 3}, train_micro_batch_size_per_gpu=2))
WAITS_FOR_THE_DEVICE = (
    job({"stage": 1}, train_micro_batch_size_per_gpu=16),
    job({"stage": 2}, train_micro_batch_size_per_gpu=8),
)


def _calibration(*ratios: float) -> SpeedCalibration:
    """Return one of trials whose predictions do not depend on the host."""
    predicted = (100.0,) * len(HOSTS)
    return SpeedCalibration(
        trials=tuple(TimedTrial(measured=100.0 * r, predicted=predicted) for r in ratios)
    )


def _taught(trainings: Iterable[Training], *, slowness: float) -> SpeedCalibration:
    """Return what trials on a host of some speed would have taught."""
    calibration, truth = SpeedCalibration(), replace(AROUND, host_slowness=slowness)
    for training in trainings:
        measured = predict_throughput(training, truth).tokens_per_s
        calibration = calibration.and_trial(training, AROUND, measured)
    return calibration


def test_without_trials_nothing_changes() -> None:
    assert SpeedCalibration().predict(job(), AROUND) == predict_throughput(job(), AROUND)


def test_one_trial_is_believed_half_and_many_nearly_whole() -> None:
    assert _calibration(2.0).log_ratio == pytest.approx(math.log(2) / 2)
    assert _calibration(*[2.0] * 19).log_ratio == pytest.approx(0.95 * math.log(2))


def test_the_interval_narrows_with_trials_that_agree() -> None:
    widths = [_calibration(*[1.3] * number).log_width(0.4) for number in (1, 3, 10, 100)]
    assert widths == sorted(widths, reverse=True)
    assert 0.4 > widths[1] > widths[-1] >= LEAST_WIDTH


def test_the_interval_stays_wide_where_trials_contradict_each_other() -> None:
    apart = _calibration(0.5, 2.0, 0.5, 2.0, 0.5, 2.0)
    assert apart.log_width(0.2) > math.log(2)


def test_a_corrected_prediction_still_adds_up() -> None:
    training = job({"stage": 3})
    predicted = predict_throughput(training, AROUND)
    corrected = _calibration(0.7, 0.8, 0.75).predict(training, AROUND)
    assert sum(corrected.items.values()) == pytest.approx(corrected.step_s)
    assert corrected.step_s * corrected.tokens_per_s == pytest.approx(
        predicted.step_s * predicted.tokens_per_s
    )
    assert corrected.tokens_per_s_low < corrected.tokens_per_s < predicted.tokens_per_s


def test_trials_that_do_not_wait_for_the_host_say_nothing_of_it() -> None:
    assert _calibration(0.5, 0.6).host_slowness == 1
    assert _taught(WAITS_FOR_THE_DEVICE, slowness=HOSTS[-1]).host_slowness == 1


@pytest.mark.parametrize("slowness", [HOSTS[1], HOSTS[-2]])
def test_a_slow_or_quick_host_is_found_and_changes_only_what_waits_for_it(slowness: float) -> None:
    calibration = _taught((*WAITS_FOR_THE_HOST, *WAITS_FOR_THE_DEVICE), slowness=slowness)
    # Between the usual host and the true one: four trials do not outweigh the prior wholly.
    assert abs(math.log(calibration.host_slowness / slowness)) < 0.2
    for training in WAITS_FOR_THE_DEVICE:
        before = predict_throughput(training, AROUND).tokens_per_s
        assert calibration.predict(training, AROUND).tokens_per_s == pytest.approx(before, rel=0.03)
    other = job({"stage": 3}, train_micro_batch_size_per_gpu=3)
    truth = predict_throughput(other, replace(AROUND, host_slowness=slowness)).tokens_per_s
    assert calibration.predict(other, AROUND).tokens_per_s == pytest.approx(truth, rel=0.1)


def test_a_host_whose_speed_is_known_is_corrected_from_there() -> None:
    slow = replace(AROUND, host_slowness=1.5)
    training = WAITS_FOR_THE_HOST[0]
    measured = predict_throughput(training, slow).tokens_per_s
    assert SpeedCalibration().and_trial(training, slow, measured).host_slowness == 1


def test_what_a_landscape_s_complete_trials_teach_nearly_halves_the_error_on_those_after_them() -> (
    None
):
    calibration, errors, uncorrected = SpeedCalibration(), [], []
    for run in landscape():
        errors.append(_error(run, calibration))
        uncorrected.append(_error(run, SpeedCalibration()))
        if run.is_complete:
            calibration = calibration.and_trial(run.training, run.surroundings, run.tokens_per_s)
    assert len(calibration.trials) == 24
    assert median(errors) < 0.1
    assert median(errors) < 0.6 * median(uncorrected)
    assert 1.0 < calibration.host_slowness < 1.5


@pytest.mark.parametrize("hosts", ["x2", "x2_third_host", "x2_other_host", "x4"])
def test_real_ranks_of_one_machine_are_predicted_as_well_or_better_with_what_the_others_taught(
    hosts: str,
) -> None:
    """Each of a machine's pairs by all the others: as far as one pool's trials may help another."""
    before, after = [], []
    trials = {run.name: _trial(run) for run in pairs(hosts)}
    for left_out in pairs(hosts):
        others = tuple(trial for name, trial in trials.items() if name != left_out.name)
        before.append(_error(left_out, SpeedCalibration()))
        after.append(_error(left_out, SpeedCalibration(trials=others)))
    assert median(after) < max(median(before), 0.06)


def _trial(run: Timed) -> TimedTrial:
    taught = SpeedCalibration().and_trial(run.training, run.surroundings, run.tokens_per_s)
    return taught.trials[0]


def _error(run: Timed, calibration: SpeedCalibration) -> float:
    predicted = calibration.predict(run.training, run.surroundings).tokens_per_s
    return abs(math.log(predicted / run.tokens_per_s))
