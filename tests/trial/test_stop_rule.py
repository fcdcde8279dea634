from hypothesis import given
from hypothesis import strategies as st

from autotune.trial.spec import StepRule
from autotune.trial.stop_rule import Stop, why_stop

RULE = StepRule(min_steps=4, max_steps=8, max_s=10.0, tight=0.02, slow_step_s=2.0)
NOISY = [1.0, 1.3, 0.8, 1.2, 0.9, 1.25, 0.85, 1.1]


def test_no_trial_ends_before_it_has_seen_enough() -> None:
    assert why_stop([1.0, 1.0, 1.0], RULE) is None


def test_equal_steps_are_tight() -> None:
    assert why_stop([1.0, 1.001, 0.999, 1.0], RULE) is Stop.TIGHT


def test_noisy_steps_go_on_until_there_are_enough() -> None:
    assert why_stop(NOISY[:7], RULE) is None
    assert why_stop(NOISY, RULE) is Stop.ENOUGH


def test_warm_up_does_not_count_for_tightness() -> None:
    steady = [1.0, 1.001, 0.999, 1.0]
    assert why_stop([1.9, *steady], RULE) is Stop.TIGHT
    # Three steady steps are fewer than the rule wants, whatever the warm-up.
    assert why_stop([1.9, *steady[:3]], RULE) is None


def test_long_steps_end_a_trial_by_time() -> None:
    rule = StepRule(min_steps=4, max_steps=100, max_s=10.0)
    assert why_stop([2.0, 3.0, 2.0], rule) is None
    assert why_stop([2.0, 3.0, 2.0, 3.0], rule) is Stop.ENOUGH


def test_a_trial_is_slow_only_if_its_fastest_step_is() -> None:
    assert why_stop([2.5, 2.1], RULE) is Stop.SLOW
    assert why_stop([2.5, 1.9], RULE) is None
    assert why_stop([2.5, 1.9, 2.2], RULE) is None


def test_a_first_step_is_slow_only_beyond_what_warm_up_explains() -> None:
    # Stage 3 traces in it: a trial of 2.0 s a step, which is not slow, may begin with 3.9 s.
    assert why_stop([3.9], RULE) is None
    assert why_stop([4.1], RULE) is Stop.SLOW
    assert why_stop([3.9, 2.0], RULE) is None


def test_few_wanted_steps_do_not_make_a_slow_trial_pass() -> None:
    rule = StepRule(min_steps=1, max_steps=1, max_s=10.0, slow_step_s=2.0)
    assert why_stop([3.9], rule) is Stop.ENOUGH
    assert why_stop([4.1], rule) is Stop.SLOW


def test_a_rule_without_a_best_trial_never_stops_as_slow() -> None:
    rule = StepRule(min_steps=4, max_steps=8, max_s=1e9)
    assert why_stop([1e3, 9e2, 1.2e3], rule) is None


@given(st.lists(st.floats(1e-3, 5.0), min_size=8, max_size=20))
def test_every_trial_ends(step_s: list[float]) -> None:
    assert why_stop(step_s, RULE) is not None
