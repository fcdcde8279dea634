import math

import pytest

from autotune.predict.speed_calibration import LEAST_WIDTH, SpeedCalibration
from autotune.predict.throughput import SpeedSurroundings, predict_throughput
from tests.predict.jobs import job
from tests.predict.rows import H200


def _calibration(*ratios: float) -> SpeedCalibration:
    return SpeedCalibration(pairs=tuple((100.0, 100.0 * ratio) for ratio in ratios))


def test_without_trials_nothing_changes() -> None:
    predicted = predict_throughput(job(), SpeedSurroundings.of(H200, local_ranks=8))
    assert SpeedCalibration().correct(predicted) is predicted


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
    predicted = predict_throughput(job({"stage": 3}), SpeedSurroundings.of(H200, local_ranks=8))
    corrected = _calibration(0.7, 0.8, 0.75).correct(predicted)
    assert sum(corrected.items.values()) == pytest.approx(corrected.step_s)
    assert corrected.step_s * corrected.tokens_per_s == pytest.approx(
        predicted.step_s * predicted.tokens_per_s
    )
    assert corrected.tokens_per_s_low < corrected.tokens_per_s < predicted.tokens_per_s


def test_a_calibration_survives_json() -> None:
    calibration = _calibration(0.9, 1.1).and_pair(5.0, 6.0)
    assert SpeedCalibration.from_json(calibration.to_json()) == calibration
