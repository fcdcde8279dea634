"""Bucket sizes that DeepSpeed refuses, and sizes far from sense."""

from typing import Any

import pytest

from autotune.lint.rules.buckets import RULES
from tests.lint.rules.asking import findings, reported, zero

REDUCE = "zero_optimization.reduce_bucket_size"
ALLGATHER = "zero_optimization.allgather_bucket_size"


@pytest.mark.parametrize(
    ("keys", "launch", "expected"),
    [
        (
            zero(2, allgather_bucket_size=200_000_001),
            {},
            [f"error allgather-bucket-alignment {ALLGATHER}"],
        ),
        (
            zero(1, allgather_bucket_size=7),
            {},
            [f"error allgather-bucket-alignment {ALLGATHER}"],
        ),
        (zero(3, reduce_bucket_size=1e6), {}, [f"warning small-reduce-bucket {REDUCE}"]),
        (
            zero(2, reduce_bucket_size=50_000),
            {"num_parameters": 13_000_000_000},
            [f"warning small-reduce-bucket {REDUCE}"],
        ),
        (
            zero(2, reduce_bucket_size=5e9),
            {"num_parameters": 125_000_000},
            [f"note large-reduce-bucket {REDUCE}"],
        ),
    ],
)
def test_a_fault_is_found(
    keys: dict[str, Any], launch: dict[str, Any], expected: list[str]
) -> None:
    assert reported(RULES, keys, **launch) == expected


@pytest.mark.parametrize(
    ("keys", "launch"),
    [
        ({}, {}),
        (zero(2, allgather_bucket_size=2e8), {}),
        (zero(3, allgather_bucket_size=7), {}),
        (zero(0, allgather_bucket_size=7, reduce_bucket_size=7), {}),
        (
            zero(1, allgather_bucket_size=7)
            | {"bf16.enabled": True, "data_types.grad_accum_dtype": "fp32"},
            {},
        ),
        (zero(3, reduce_bucket_size=5e6), {}),
        (zero(3, reduce_bucket_size="auto"), {}),
        (zero(3, reduce_bucket_size=589_824), {"num_parameters": 125_000_000}),
        (
            zero(3, reduce_bucket_size=1e6),
            {"num_parameters": 70_000_000_000, "num_trainable": 80_000_000},
        ),
        (zero(2), {"num_parameters": 1_000_000}),
        (zero(2, reduce_bucket_size=5e8), {"num_parameters": 1_000_000}),
        (zero(2, reduce_bucket_size=5e9), {"num_parameters": 1_000_000_000}),
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any], launch: dict[str, Any]) -> None:
    assert reported(RULES, keys, **launch) == []


def test_an_odd_size_is_made_even() -> None:
    [found] = findings(RULES, zero(2, allgather_bucket_size=500_000_001))
    assert found.fix is not None
    assert found.fix.put == {ALLGATHER: 500_000_002}
