import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.predict.calibration import LEAST_MARGIN, MIN_PAIRS, Calibration

MODEL_MARGIN = 0.03
BYTES = st.integers(2**20, 2**40)
PAIRS = st.lists(st.tuples(BYTES, st.floats(0.5, 2.0)), min_size=MIN_PAIRS, max_size=12)


def _calibration(*pairs: tuple[int, int]) -> Calibration:
    calibration = Calibration()
    for predicted, measured in pairs:
        calibration = calibration.and_pair(predicted, measured)
    return calibration


def test_the_factor_is_the_median_ratio_of_measured_to_predicted() -> None:
    assert _calibration((100, 110), (200, 222), (50, 56)).factor == pytest.approx(1.11)


def test_one_outlier_does_not_move_the_factor_but_widens_the_margin() -> None:
    pairs = [(1000, 1000)] * 10
    agreeing, with_outlier = _calibration(*pairs), _calibration(*pairs, (1000, 1200))
    assert with_outlier.factor == 1.0
    assert agreeing.margin(MODEL_MARGIN) == LEAST_MARGIN
    assert with_outlier.margin(MODEL_MARGIN) == pytest.approx(0.4)


@pytest.mark.parametrize("num_pairs", range(MIN_PAIRS))
def test_a_few_pairs_change_nothing(num_pairs: int) -> None:
    calibration = _calibration(*[(100, 150)] * num_pairs)
    assert calibration.factor == 1.0
    assert calibration.margin(MODEL_MARGIN) == MODEL_MARGIN


def test_errors_are_of_the_uncorrected_prediction_and_negative_where_it_was_low() -> None:
    calibration = _calibration((110, 100), (90, 100), (80, 100))
    assert calibration.errors == pytest.approx((0.1, -0.1, -0.2))
    assert calibration.mean_error == pytest.approx(0.4 / 3)
    assert calibration.worst_error == pytest.approx(-0.2)


def test_without_pairs_no_error_is_reported() -> None:
    assert Calibration().mean_error is None
    assert Calibration().worst_error is None
    assert Calibration().errors == ()


def test_the_models_own_margin_fades_as_trials_agree() -> None:
    margins = [_calibration(*[(1000, 1000)] * n).margin(0.08) for n in (3, 8, 16, 100)]
    assert margins == pytest.approx([0.08 / 3, 0.01, LEAST_MARGIN, LEAST_MARGIN])


@given(pairs=st.lists(st.tuples(BYTES, BYTES)))
def test_a_calibration_survives_json(pairs: list[tuple[int, int]]) -> None:
    calibration = Calibration(pairs=tuple(pairs))
    assert Calibration.from_json(json.loads(json.dumps(calibration.to_json()))) == calibration


@given(bias=st.floats(0.5, 2.0), predicted=st.lists(BYTES, min_size=MIN_PAIRS, max_size=12))
def test_a_constant_bias_is_corrected_exactly(bias: float, predicted: list[int]) -> None:
    calibration = _calibration(*[(p, round(p * bias)) for p in predicted])
    assert calibration.factor == pytest.approx(bias, rel=1e-5)
    assert calibration.margin(0.0) == LEAST_MARGIN


@given(pairs=PAIRS, model_margin=st.floats(0.0, 0.2))
def test_the_corrected_predictions_of_the_pairs_lie_within_the_margin(
    pairs: list[tuple[int, float]], model_margin: float
) -> None:
    calibration = _calibration(*[(p, round(p * ratio)) for p, ratio in pairs])
    margin = calibration.margin(model_margin)
    assert margin >= LEAST_MARGIN
    for predicted, measured in calibration.pairs:
        corrected = predicted * calibration.factor
        assert abs(measured - corrected) <= margin * corrected * (1 + 1e-12)
