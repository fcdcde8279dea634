import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.study.outcome import (
    THROTTLED,
    DeviceClocks,
    Failure,
    Measurement,
    Outcome,
    Phase,
    PhaseMemory,
    RankMeasurement,
    Status,
)

_seconds = st.floats(1e-4, 1e4)
_phases = st.sampled_from(list(Phase))
_bytes = st.integers(0, 2**45)


_clocks = st.builds(
    DeviceClocks,
    num_samples=st.integers(1, 99),
    sm_clock_mhz_min=st.integers(0, 3000),
    sm_clock_mhz_median=st.integers(0, 3000),
    temperature_c_max=st.integers(0, 110),
    power_w_max=st.none() | st.floats(0, 2000),
    limits=st.lists(st.sampled_from(["sw power cap", *sorted(THROTTLED)]), unique=True).map(tuple),
)


@st.composite
def _ranks(draw: st.DrawFn) -> RankMeasurement:
    num_steps = draw(st.integers(1, 6))
    times = st.lists(_seconds, min_size=num_steps, max_size=num_steps).map(tuple)
    memory = st.builds(
        PhaseMemory,
        phase=_phases,
        used_bytes=_bytes,
        allocated_bytes=st.none() | _bytes,
        reserved_bytes=st.none() | _bytes,
    )
    return RankMeasurement(
        rank=draw(st.integers(0, 63)),
        inner_s=draw(times),
        boundary_s=draw(times),
        host_loop_s=draw(times | st.just(())),
        memory=tuple(draw(st.lists(memory, min_size=1, max_size=4))),
        losses=tuple(draw(st.lists(st.floats(0, 20), max_size=7))),
        host_bytes=draw(_bytes),
        alloc_retries=draw(st.integers(0, 9)),
        clocks=draw(st.none() | _clocks),
    )


_measurements = st.builds(
    Measurement,
    tokens_per_step=st.integers(1, 10**8),
    accumulation=st.integers(2, 64),
    timed_accumulation=st.just(2),
    ranks=st.lists(_ranks(), min_size=1, max_size=3).map(tuple),
)
_failures = st.builds(
    Failure,
    reason=st.text(min_size=1),
    rank=st.none() | st.integers(0, 63),
    phase=st.none() | _phases,
    needed_bytes=st.none() | _bytes,
    short_bytes=st.none() | _bytes,
    log=st.none() | st.text(),
)
_outcomes = st.one_of(
    st.builds(Outcome, status=st.just(Status.COMPLETE), evaluator=st.just("measured"),
              measurement=_measurements, neighbours=st.tuples(st.integers(0, 9)),
              devices=st.tuples(st.text())),
    st.builds(Outcome, status=st.sampled_from([s for s in Status if s is not Status.COMPLETE]),
              evaluator=st.just("emulated"), measurement=st.none() | _measurements,
              failure=_failures, duration_s=_seconds),
)  # fmt: skip


@given(_outcomes)
def test_an_outcome_survives_json(outcome: Outcome) -> None:
    text = json.dumps(outcome.to_json(), allow_nan=False)
    assert Outcome.from_json(json.loads(text)) == outcome


@given(_ranks())
def test_a_rank_survives_json(rank: RankMeasurement) -> None:
    assert RankMeasurement.from_json(json.loads(json.dumps(rank.to_json()))) == rank


@given(_measurements)
def test_the_slowest_rank_counts(measurement: Measurement) -> None:
    for rank in measurement.ranks:
        alone = Measurement(
            tokens_per_step=measurement.tokens_per_step,
            accumulation=measurement.accumulation,
            timed_accumulation=2,
            ranks=(rank,),
        )
        for ours, theirs in zip(measurement.all_step_s, alone.all_step_s, strict=False):
            assert ours >= theirs


def _measurement(boundary_s: tuple[float, ...], **other: Any) -> Measurement:
    rank = RankMeasurement(
        rank=0,
        inner_s=other.pop("inner_s", (0.0,) * len(boundary_s)),
        boundary_s=boundary_s,
        memory=(
            PhaseMemory(phase=Phase.INIT, used_bytes=5),
            PhaseMemory(phase=Phase.STEADY, used_bytes=3),
        ),
        losses=(),
    )
    values = {"tokens_per_step": 100, "accumulation": 1, "timed_accumulation": 1} | other
    return Measurement(ranks=(rank,), **values)


def test_tokens_per_s_are_those_of_the_mean_step_after_warm_up() -> None:
    interval = _measurement((9.0, 2.0, 2.0, 2.0, 2.0)).tokens_per_s
    assert (interval.low, interval.mean, interval.high) == (50.0, 50.0, 50.0)


def test_a_short_step_is_composed_into_the_users() -> None:
    measurement = _measurement((3.0, 3.0), inner_s=(1.0, 1.0), accumulation=4, timed_accumulation=2)
    assert measurement.composed
    assert measurement.all_step_s == (6.0, 6.0)  # 3 inner ones and the boundary


def test_one_step_alone_has_no_upper_bound() -> None:
    interval = _measurement((2.0,)).tokens_per_s
    assert (interval.low, interval.mean, interval.high) == (0.0, 50.0, math.inf)


def test_the_peak_is_that_of_any_phase() -> None:
    assert _measurement((1.0,)).peak_bytes == 5


def test_a_complete_trial_needs_a_measurement_and_every_other_a_reason() -> None:
    with pytest.raises(ValueError, match="a complete trial has a measurement"):
        Outcome(status=Status.COMPLETE, evaluator="measured")
    with pytest.raises(ValueError, match="a trial that is slow carries a reason"):
        Outcome(status=Status.SLOW, evaluator="measured")


def test_a_power_cap_is_recorded_and_heat_is_throttling() -> None:
    def clocked(*limits: str) -> Measurement:
        clocks = DeviceClocks(
            num_samples=3,
            sm_clock_mhz_min=1_200,
            sm_clock_mhz_median=1_900,
            temperature_c_max=80,
            limits=limits,
        )
        measurement = _measurement((1.0,))
        return replace(measurement, ranks=(replace(measurement.ranks[0], clocks=clocks),))

    assert clocked("sw power cap", "application clocks").throttled == ()
    assert clocked("sw power cap", "hw thermal").throttled == ("hw thermal",)
    assert _measurement((1.0,)).throttled == ()


def test_a_rank_of_an_earlier_version_has_no_clocks_and_no_loops() -> None:
    rank = _measurement((1.0,)).ranks[0].to_json()
    del rank["clocks"], rank["host_loop_s"]
    assert RankMeasurement.from_json(rank).clocks is None
    assert RankMeasurement.from_json(rank).host_loop_s == ()


def test_the_host_of_a_step_is_that_of_the_rank_where_it_ran_slowest() -> None:
    measurement = _measurement((1.0, 1.0))
    assert measurement.host_loop_s == ()
    ranks = [
        replace(measurement.ranks[0], host_loop_s=loops) for loops in ((1e-3, 2e-3), (3e-3, 1e-3))
    ]
    assert replace(measurement, ranks=tuple(ranks)).host_loop_s == (3e-3, 2e-3)


def test_asking_a_trial_for_what_it_did_not_measure_is_our_bug() -> None:
    outcome = Outcome(status=Status.CRASHED, evaluator="x", failure=Failure(reason="as if"))
    with pytest.raises(ValueError, match="a trial that is crashed was not measured"):
        _ = outcome.measured
