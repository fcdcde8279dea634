import math
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.study.step_times import compose_step_s, mean_interval, num_warmup_steps, slowest_of_s

seconds = st.floats(1e-4, 1e3)


@pytest.mark.parametrize(
    ("step_s", "expected"),
    [
        ([2.0, 1.6, 1.0, 1.0, 1.0, 1.0], 2),
        ([1.3, 1.0, 1.0, 1.0, 1.0, 1.0, 1.3, 1.0], 1),
        ([3.0], 0),
        ([], 0),
        ([5.0, 5.0, 5.0, 5.0], 0),
    ],
)
def test_slow_first_steps_are_warm_up_and_a_late_slow_one_is_not(
    step_s: list[float], expected: int
) -> None:
    assert num_warmup_steps(step_s) == expected


@given(st.lists(seconds, max_size=40))
def test_at_most_half_of_the_steps_are_warm_up(step_s: list[float]) -> None:
    assert 0 <= num_warmup_steps(step_s) <= len(step_s) / 2


@given(st.lists(seconds, min_size=2, max_size=30), st.sampled_from([0.25, 0.5, 2.0, 4.0]))
def test_the_warm_up_does_not_depend_on_the_unit(step_s: list[float], factor: float) -> None:
    assert num_warmup_steps([s * factor for s in step_s]) == num_warmup_steps(step_s)


@given(seconds, seconds, st.integers(2, 64), st.integers(2, 8))
def test_a_composed_step_is_its_inner_steps_and_one_boundary(
    micro_s: float, boundary_s: float, accumulation: int, timed: int
) -> None:
    composed = compose_step_s(
        micro_s * (timed - 1), boundary_s, timed_accumulation=timed, accumulation=accumulation
    )
    assert composed == pytest.approx((accumulation - 1) * micro_s + boundary_s)


@given(seconds, seconds, st.integers(2, 16))
def test_a_step_that_was_timed_whole_is_not_changed_by_composing(
    inner_s: float, boundary_s: float, accumulation: int
) -> None:
    whole = compose_step_s(
        inner_s, boundary_s, timed_accumulation=accumulation, accumulation=accumulation
    )
    assert whole == pytest.approx(inner_s + boundary_s)


def test_without_accumulation_the_boundary_is_the_step() -> None:
    assert compose_step_s(0.0, 0.7, timed_accumulation=1, accumulation=1) == 0.7


def test_accumulated_steps_cannot_be_composed_without_an_inner_one() -> None:
    with pytest.raises(ValueError, match="an inner micro step is needed"):
        compose_step_s(0.0, 0.7, timed_accumulation=1, accumulation=4)


def test_the_interval_is_students() -> None:
    # t(0.975, 3) = 3.1824; mean 1, standard deviation sqrt(2/3) x 0.1.
    interval = mean_interval([0.9, 1.1, 0.9, 1.1])
    half = 3.182446 * math.sqrt(0.04 / 3) / 2
    assert interval.mean == pytest.approx(1.0)
    assert (interval.low, interval.high) == pytest.approx((1 - half, 1 + half))
    assert interval.relative_half_width == pytest.approx(half)


@given(st.lists(seconds, min_size=2, max_size=30))
def test_the_interval_holds_the_mean(samples: list[float]) -> None:
    interval = mean_interval(samples)
    assert interval.mean == pytest.approx(fmean(samples))
    assert 0.0 <= interval.low <= interval.mean <= interval.high


def test_one_sample_has_no_spread() -> None:
    interval = mean_interval([2.0])
    assert (interval.mean, interval.low, interval.high) == (2.0, 0.0, math.inf)


@given(st.lists(seconds, min_size=1, max_size=12))
def test_of_many_ranks_the_slowest_is_the_slowest_step(step_s: list[float]) -> None:
    assert slowest_of_s(step_s, 1) == pytest.approx(fmean(step_s))
    assert slowest_of_s(step_s, 100_000) == pytest.approx(max(step_s))


@given(st.lists(seconds, min_size=1, max_size=12), st.integers(1, 64))
def test_more_ranks_are_never_faster(step_s: list[float], ranks: int) -> None:
    assert slowest_of_s(step_s, ranks + 1) >= slowest_of_s(step_s, ranks) * (1 - 1e-9)


def test_the_slowest_of_two_is_the_mean_over_all_pairs() -> None:
    step_s = [1.0, 4.0, 2.0]
    pairs = [max(one, other) for one in step_s for other in step_s]
    assert slowest_of_s(step_s, 2) == pytest.approx(fmean(pairs))


def test_no_steps_have_no_slowest() -> None:
    with pytest.raises(ValueError, match="at least one step is needed"):
        slowest_of_s([], 2)
