"""The speed model against trials of the tuner itself, which were recorded with their configs."""

import json
from statistics import median

import pytest

from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.predict.throughput.constants import Rates
from tests.benchmarks.rank_agreement import kendall
from tests.benchmarks.throughput_fit import ALL, FILE
from tests.predict.throughput.timed import Timed, fitted, landscape, pairs

FITTED = {name: Rates(**rates) for name, rates in json.loads(FILE.read_text("utf-8")).items()}


def _speeds(runs: tuple[Timed, ...], *, without: str | None = None) -> list[tuple[float, float]]:
    """Return what was recorded and what is predicted, in tokens/s.

    Args:
        runs: the trials.
        without: constants fitted without this model; None takes each run's own.
    """
    return [
        (run.tokens_per_s, run.predicted_tokens_per_s(FITTED[without or run.model])) for run in runs
    ]


def _step_errors(speeds: list[tuple[float, float]]) -> list[float]:
    return [abs(recorded / predicted - 1) for recorded, predicted in speeds]


@pytest.mark.parametrize("without", [ALL, "1.3b"])
@pytest.mark.parametrize(("older", "number"), [(True, 41), (False, 152)])
def test_the_best_modelled_config_of_a_landscape_is_within_10_percent_of_the_best(
    without: str, *, older: bool, number: int
) -> None:
    """No trial of a landscape was fitted to, nor, for the second, any of its model."""
    speeds = _speeds(landscape(older=older), without=without)
    assert len(speeds) == number
    chosen, _ = max(speeds, key=lambda pair: pair[1])
    assert chosen >= 0.9 * max(recorded for recorded, _ in speeds)


@pytest.mark.parametrize(
    ("older", "first", "middle", "worst", "tau"),
    [
        (True, 41, 0.08, 0.30, 0.88),
        # Two machines, mostly two trials at a time, half of them stopped after one step. What
        # complete ones teach of the host makes up for much of it:
        # `tests/predict/test_speed_calibration.py`.
        (False, 148, 0.17, 0.45, 0.83),
        # The last four ran on two more machines, one trial at a time.
        (False, 152, 0.17, 0.45, 0.82),
    ],
)
def test_landscapes_are_predicted_in_order(
    *, older: bool, first: int, middle: float, worst: float, tau: float
) -> None:
    runs = landscape(older=older)[:first]
    assert len(runs) == first
    assert not {run.name for run in runs} & {run.name for run in fitted()}
    speeds = _speeds(runs, without=ALL)
    errors = _step_errors(speeds)
    assert kendall(speeds) >= tau
    assert median(errors) <= middle
    # A single step can be anything.
    assert max(e for e, run in zip(errors, runs, strict=True) if run.num_steps > 1) <= worst


@pytest.mark.parametrize(
    ("hosts", "kind", "number", "middle", "worst", "tau"),
    [
        # This host was quicker than the others: what waits for it is predicted slow.
        ("x2_other_host", EvaluatorKind.MEASURED, 10, 0.12, 0.30, 0.75),
        ("x4", EvaluatorKind.MEASURED, 13, 0.08, 0.15, 0.85),
        ("x4", EvaluatorKind.EMULATED, 12, 0.08, 0.20, 0.90),
        # Recorded last, and nothing was fitted to them; a slower host.
        ("x2", EvaluatorKind.MEASURED, 23, 0.12, 0.25, 0.90),
        ("x2", EvaluatorKind.EMULATED, 24, 0.08, 0.20, 0.85),
        ("x2_third_host", EvaluatorKind.MEASURED, 6, 0.12, 0.20, 0.80),
        ("x2_third_host", EvaluatorKind.EMULATED, 6, 0.08, 0.20, 0.85),
    ],
)
def test_pairs_of_real_and_of_emulated_ranks(
    hosts: str, kind: str, *, number: int, middle: float, worst: float, tau: float
) -> None:
    """Constants are fitted to other models; links, copies and CPUAdam are probed."""
    speeds = _speeds(pairs(hosts, kind=kind))
    errors = _step_errors(speeds)
    assert len(speeds) == number
    assert median(errors) <= middle
    assert max(errors) <= worst
    assert kendall(speeds) >= tau
