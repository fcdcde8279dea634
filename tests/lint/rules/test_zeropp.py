"""hpZ and quantization against stage, world and node."""

from typing import Any

import pytest

from autotune.lint.rules.zeropp import RULES
from tests.lint.rules.asking import findings, reported, zero

HPZ = "zero_optimization.zero_hpz_partition_size"
WEIGHTS = "zero_optimization.zero_quantized_weights"
GRADIENTS = "zero_optimization.zero_quantized_gradients"
BF16 = {"bf16.enabled": True}


@pytest.mark.parametrize(
    ("keys", "launch", "expected"),
    [
        (zero(3, zero_hpz_partition_size=8), {"gpus": 12}, [f"error hpz-world-size {HPZ}"]),
        (zero(3, zero_hpz_partition_size=16), {"gpus": 8}, [f"warning hpz-node {HPZ}"]),
        (
            zero(3, zero_hpz_partition_size=8),
            {"gpus": 16, "nodes": 4},
            [f"warning hpz-node {HPZ}"],
        ),
        (
            zero(3, zero_quantized_gradients=True, reduce_scatter=False),
            {},
            [
                "error quantized-gradients-reduce-scatter zero_optimization.reduce_scatter",
                f"error quantized-gradients-reduce-scatter {GRADIENTS}",
            ],
        ),
        (
            zero(3, zero_quantized_weights=True) | {"torch_autocast.enabled": True},
            {},
            [f"error quantized-weights-autocast {WEIGHTS}"],
        ),
        (
            zero(2, zero_quantized_weights=True, zero_hpz_partition_size=8),
            {"gpus": 12},
            [f"warning zeropp-stage {WEIGHTS}", f"warning zeropp-stage {HPZ}"],
        ),
        (
            BF16 | zero(3, zero_quantized_weights=True),
            {},
            [f"warning quantized-weights-bf16 {WEIGHTS}"],
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
        (zero(3, zero_hpz_partition_size=8), {}),
        (zero(3, zero_hpz_partition_size=8), {"gpus": 16, "nodes": 2}),
        (zero(3, zero_hpz_partition_size=4), {"gpus": 16, "nodes": 2}),
        (zero(3, zero_hpz_partition_size=1), {"gpus": 5}),
        (zero(3, zero_hpz_partition_size="auto"), {"gpus": 5}),
        (zero(3, zero_quantized_gradients=True), {}),
        (zero(3, zero_quantized_weights=False, reduce_scatter=False), {}),
        (zero(2, zero_quantized_gradients=False, zero_hpz_partition_size=1), {}),
        ({"fp16.enabled": True} | zero(3, zero_quantized_weights=True), {}),
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any], launch: dict[str, Any]) -> None:
    assert reported(RULES, keys, **launch) == []


def test_sizes_that_would_do_are_named() -> None:
    [found] = findings(RULES, zero(3, zero_hpz_partition_size=8), gpus=12)
    assert found.suggestion == "use a divisor of 12: 1, 2, 3, 4, 6, 12"
