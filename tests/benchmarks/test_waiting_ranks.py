"""What emulation leaves out where ranks wait for each other, by when one rank launched what."""

import pytest

from tests.benchmarks.emulated_pairs import PAIRS
from tests.benchmarks.waiting_ranks import steps_of, stretch, together_s

STEPS = steps_of()
STAGE_3 = [number for number in STEPS if PAIRS[number].stage == 3]


def test_one_rank_does_not_wait() -> None:
    for steps in STEPS.values():
        assert stretch(steps, ranks=1) == pytest.approx(1.0)


def test_equal_ranks_do_not_wait() -> None:
    step = STEPS[STAGE_3[0]][0]
    assert together_s([step, step]) == pytest.approx(sum(step))


def test_the_less_a_rank_may_be_ahead_the_longer_all_take() -> None:
    one, other = STEPS[STAGE_3[0]][:2]
    times = [together_s([one, other], ahead=ahead) for ahead in (0, 2, 8, 1000)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == pytest.approx(max(sum(one), sum(other)))
    assert times[0] > 1.01 * times[-1]


@pytest.mark.parametrize("number", STAGE_3)
def test_ranks_at_stage_3_take_longer_than_one_alone(number: int) -> None:
    two, four = (stretch(STEPS[number], ranks=ranks) for ranks in (2, 4))
    assert 1.04 < two < 1.12
    assert 1.07 < four < 1.26
    assert two < four


def test_forward_s_python_and_backward_s_are_slow_each_on_its_own() -> None:
    """Two threads on two virtual processors; 7B at stage 3, `reduce_bucket_size` 1e7."""
    forward = [sum(gaps[:200]) for gaps in STEPS[22]]
    backward = [sum(gaps[200:600]) for gaps in STEPS[22]]
    assert [round(find(forward), 2) for find in (min, max)] == [0.22, 0.41]
    assert [round(find(backward), 2) for find in (min, max)] == [0.52, 0.80]
    assert forward.index(max(forward)) != backward.index(max(backward))


def test_ranks_with_busy_devices_hardly_do() -> None:
    (busy,) = [number for number in STEPS if number not in STAGE_3]
    assert stretch(STEPS[busy], ranks=4) < 1.005
