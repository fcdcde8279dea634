"""Which ranks are replayed, and which one is played."""

import pytest

from autotune.predict.memory.peak_rank import peak_ranks
from autotune.predict.memory.predict import Surroundings, peak_rank, predict_memory
from autotune.predict.program.events import Parameter
from tests.benchmarks.emulated_pairs import PAIRS, training_of
from tests.predict.jobs import job, small_llama
from tests.predict.rows import H200


def _parameters(*sizes: int) -> list[Parameter]:
    return [Parameter(f"p{n}", size, True, False) for n, size in enumerate(sizes)]


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_but_at_stage_2_rank_0_stands_for_all(stage: int) -> None:
    assert peak_ranks(job({"stage": stage}, ranks=8), _parameters(8, 8)) == (0,)


def test_one_rank_is_rank_0() -> None:
    assert peak_ranks(job({"stage": 2}, ranks=1), _parameters(8, 8)) == (0,)


def test_a_rank_that_touches_large_parameters_is_looked_at() -> None:
    # Four partitions of 16 elements: the second one has the end of the first large tensor and the
    # beginning of the other.
    parameters = _parameters(4, 20, 20, 4, 4, 4, 4, 4)
    assert peak_ranks(job({"stage": 2}, ranks=4), parameters) == (0, 1, 3)


def test_where_nothing_is_trained_there_are_ranks_all_the_same() -> None:
    frozen = [Parameter("p", 8, False, False)]
    assert peak_ranks(job({"stage": 2}, ranks=4), frozen) == (0, 3)


def test_the_peak_rank_needs_at_least_as_much_as_any_rank() -> None:
    zero = {"stage": 2, "reduce_bucket_size": 100_000}
    training = job(zero, model=small_llama(), ranks=4, gradient_accumulation_steps=2)
    fattest = predict_memory(training, Surroundings(device=H200)).device
    each = [
        predict_memory(training, Surroundings(device=H200, rank=rank)).device.peak_allocated_bytes
        for rank in range(4)
    ]
    assert fattest.peak_allocated_bytes == max(each) == each[fattest.rank]
    assert peak_rank(training, H200) == fattest.rank
    assert len(set(each)) > 1


@pytest.mark.parametrize("pair", [1, 2, 4, 13])
def test_of_two_real_ranks_the_fattest_is_known(pair: int) -> None:
    """Where both allocate the same, the allocator of one reserves more."""
    training = training_of(PAIRS[pair], 2)
    estimates = [
        predict_memory(training, Surroundings(device=H200, rank=rank)).device for rank in (0, 1)
    ]
    held = [(estimate.peak_allocated_bytes, estimate.peak_reserved_bytes) for estimate in estimates]
    assert peak_rank(training, H200) == held.index(max(held)) == 0
