"""The speed model against runs on H200s, each predicted by constants fitted to other models."""

import json
import math
from dataclasses import asdict
from itertools import combinations
from statistics import median

import pytest

from autotune.predict.throughput import predict_throughput
from autotune.predict.throughput.constants import RATES, Rates
from autotune.predict.throughput.uncertainty import PAIR
from tests.benchmarks.throughput_fit import ALL, FILE
from tests.predict.throughput.timed import Timed, fitted, timed, untouched

FITTED = {name: Rates(**rates) for name, rates in json.loads(FILE.read_text("utf-8")).items()}
EMULATED = [run for run in timed() if not run.on_two_cards]
REAL = [run for run in timed() if run.on_two_cards]


def _left_out_s(run: Timed) -> float:
    return run.predicted_s(FITTED[run.model])


def _errors(runs: list[Timed]) -> list[float]:
    return [abs(_left_out_s(run) / run.step_s - 1) for run in runs]


def _kendall(first: list[float], second: list[float]) -> float:
    """Return Kendall's tau-b."""
    from scipy.stats import kendalltau

    return float(kendalltau(first, second)[0])


def test_the_constants_are_those_of_the_fit() -> None:
    of_all = asdict(FITTED[ALL])
    for name, value in asdict(RATES).items():
        assert value == pytest.approx(of_all[name], rel=0.02), name
    assert set(FITTED) == {ALL, *(run.model for run in fitted())}


def test_few_constants() -> None:
    assert len(asdict(RATES)) <= 10


def test_emulated_steps_are_within_7_percent_in_the_middle() -> None:
    assert len(EMULATED) == 58
    errors = sorted(_errors(EMULATED))
    assert median(errors) <= 0.07
    assert errors[int(0.9 * len(errors))] <= 0.20


@pytest.mark.parametrize("model", ["1b", "gqa3b", "7b", "13b"])
def test_the_order_within_a_model_holds(model: str) -> None:
    runs = [run for run in EMULATED if run.model == model]
    assert len(runs) >= 11
    assert _kendall([_left_out_s(run) for run in runs], [run.step_s for run in runs]) >= 0.85


def test_real_steps_on_two_cards_are_within_8_percent_in_the_middle() -> None:
    assert len(REAL) == 8
    assert median(_errors(REAL)) <= 0.08


def test_nine_in_ten_lie_in_the_interval() -> None:
    inside = []
    for run in (*timed(), *untouched()):
        rates = FITTED.get(run.model, RATES)
        predicted = predict_throughput(run.training, run.surroundings, rates=rates)
        tokens = run.training.world_size * run.training.accumulation * run.training.tokens
        rate = tokens / run.step_s
        inside.append(predicted.tokens_per_s_low <= rate <= predicted.tokens_per_s_high)
    assert sum(inside) / len(inside) >= 0.9


def test_nine_in_ten_ratios_of_one_model_lie_in_their_interval() -> None:
    inside = []
    for model in {run.model for run in EMULATED}:
        ratios = [math.log(_left_out_s(r) / r.step_s) for r in EMULATED if r.model == model]
        inside += [abs(one - other) <= PAIR for one, other in combinations(ratios, 2)]
    assert len(inside) > 300
    assert 0.9 <= sum(inside) / len(inside) < 0.95


def test_runs_that_nothing_was_fitted_to_are_within_20_percent_in_the_middle() -> None:
    errors = {run.name: abs(run.predicted_s(RATES) / run.step_s - 1) for run in untouched()}
    assert len(errors) == 49
    assert median(errors.values()) <= 0.20


def test_of_those_the_ones_that_wait_for_no_host_are_within_8_percent() -> None:
    errors = []
    for run in untouched():
        predicted = predict_throughput(run.training, run.surroundings)
        if predicted.items["launches"] < 0.1 * predicted.step_s:
            errors.append(abs(predicted.step_s / run.step_s - 1))
    assert len(errors) >= 12
    assert median(errors) <= 0.08
