"""More of anything never needs less: over random jobs, by replay and by closed form."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.predict.memory.closed_form import estimate_closed_form
from autotune.predict.training_job import ModelSettings, Training
from tests.predict.jobs import HOPPER_WORKSPACE_BYTES, job, replayed, small_llama

Measure = Callable[[Training], int]


def by_replay(training: Training) -> int:
    return replayed(training).peak_allocated_bytes


def by_closed_form(training: Training) -> int:
    return estimate_closed_form(
        training, workspace_bytes=HOPPER_WORKSPACE_BYTES
    ).peak_allocated_bytes


MEASURES = pytest.mark.parametrize("measure", [by_replay, by_closed_form])
MIB = 2**20
BLOCK_WASTE = 4 * MIB
"""A replay counts blocks, which are up to 1 MiB larger than their tensors: noise, not need."""


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the arguments of a job; buckets small enough for the model."""
    zero: dict[str, Any] = {
        "stage": draw(st.integers(0, 3)),
        "reduce_bucket_size": draw(st.integers(100_000, 20_000_000)),
        "overlap_comm": draw(st.booleans()),
        "stage3_prefetch_bucket_size": draw(st.sampled_from([0, 1_000_000, 50_000_000])),
        "stage3_max_live_parameters": draw(st.sampled_from([1_000_000, 1_000_000_000])),
    }
    if zero["stage"] and draw(st.booleans()):
        zero["offload_optimizer"] = {"device": "cpu"}
    return {
        "zero": zero,
        "model": small_llama(num_key_value_heads=draw(st.sampled_from([2, 8]))),
        "ranks": draw(st.sampled_from([2, 4, 8, 64])),
        "seq_len": 128 * draw(st.integers(1, 8)),
        "settings": ModelSettings(activation_checkpointing=draw(st.booleans())),
        "train_micro_batch_size_per_gpu": draw(st.integers(1, 4)),
        "gradient_accumulation_steps": draw(st.integers(1, 3)),
    }


@MEASURES
@given(drawn=jobs())
@settings(max_examples=25, deadline=None)
def test_a_larger_micro_batch_never_needs_less(measure: Measure, drawn: dict[str, Any]) -> None:
    larger = drawn | {"train_micro_batch_size_per_gpu": drawn["train_micro_batch_size_per_gpu"] + 1}
    assert measure(job(**larger)) >= measure(job(**drawn)) - BLOCK_WASTE


@MEASURES
@given(drawn=jobs())
@settings(max_examples=25, deadline=None)
def test_longer_sequences_never_need_less(measure: Measure, drawn: dict[str, Any]) -> None:
    longer = drawn | {"seq_len": 2 * drawn["seq_len"]}
    assert measure(job(**longer)) >= measure(job(**drawn)) - BLOCK_WASTE


@MEASURES
@given(drawn=jobs())
@settings(max_examples=25, deadline=None)
def test_more_layers_never_need_less(measure: Measure, drawn: dict[str, Any]) -> None:
    deeper = drawn | {"model": small_llama(num_hidden_layers=6)}
    shallow = drawn | {"model": small_llama(num_hidden_layers=4)}
    assert measure(job(**deeper)) >= measure(job(**shallow)) - BLOCK_WASTE


@MEASURES
@given(drawn=jobs())
@settings(max_examples=25, deadline=None)
def test_a_larger_bucket_never_needs_less(measure: Measure, drawn: dict[str, Any]) -> None:
    zero = drawn["zero"] | {"reduce_bucket_size": 40_000_000}
    # With a larger bucket a gradient that bypassed it may be freed sooner: up to one parameter.
    largest = 2 * 4_000 * 512
    assert (
        measure(job(**drawn | {"zero": zero})) >= measure(job(**drawn)) - 2 * largest - BLOCK_WASTE
    )


@MEASURES
@given(drawn=jobs())
@settings(max_examples=25, deadline=None)
def test_more_ranks_never_need_more(measure: Measure, drawn: dict[str, Any]) -> None:
    more = drawn | {"ranks": 2 * drawn["ranks"]}
    # Shards are padded, and a bucket that more ranks share needs its second copy.
    copy = 2 * min(drawn["zero"]["reduce_bucket_size"], 20_000_000) + BLOCK_WASTE
    assert measure(job(**more)) <= measure(job(**drawn)) + copy


@given(drawn=jobs())
@settings(max_examples=25, deadline=None)
def test_items_add_up_to_the_peak(drawn: dict[str, Any]) -> None:
    result = replayed(job(**drawn))
    for peak in result.peaks.values():
        assert sum(peak.items.values()) == peak.allocated_bytes
    assert result.peak.allocated_bytes == result.peak_allocated_bytes
    assert result.peak_reserved_bytes >= result.peak_allocated_bytes


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_higher_stage_needs_less_of_a_large_model(stage: int) -> None:
    lower, higher = (by_replay(job({"stage": s}, model="7b")) for s in (stage - 1, stage))
    assert higher < lower


def test_buckets_can_outweigh_the_sharding_of_a_small_model() -> None:
    """DeepSpeed#2992: micro batch 39 fits without ZeRO and not with ZeRO-2's default buckets."""
    shape = small_llama()
    assert by_replay(job({"stage": 2}, model=shape)) > by_replay(job({"stage": 0}, model=shape))
