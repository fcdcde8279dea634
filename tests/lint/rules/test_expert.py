"""What expert parallelism needs and what it excludes."""

from typing import Any

import pytest

from autotune.lint.rules.expert import RULES
from tests.lint.rules.asking import reported, zero

SECTION = "expert_parallel"
SIZE = f"{SECTION}.autoep_size"
ON = {f"{SECTION}.enabled": True, SIZE: 4}
TENSOR = {"tensor_parallel.autotp_size": 2}


@pytest.mark.parametrize(
    ("keys", "launch", "expected"),
    [
        (ON | {SIZE: 0}, {}, [f"error expert-parallel-size {SIZE}"]),
        (ON, {"gpus": 6}, [f"error expert-parallel-size {SIZE}"]),
        (ON, {"gpus": 16, "pipeline_stages": 8}, [f"error expert-parallel-size {SIZE}"]),
        (
            ON | {f"{SECTION}.expert_tensor_parallel_size": 2},
            {},
            [f"error expert-parallel-size {SECTION}.expert_tensor_parallel_size"],
        ),
        (
            ON | {f"{SECTION}.score_func": "relu"},
            {},
            [f"error expert-parallel-choice {SECTION}.score_func"],
        ),
        (
            ON | {f"{SECTION}.load_balance_coeff": 0.1},
            {},
            [f"error expert-parallel-choice {SECTION}.load_balance_coeff"],
        ),
        (
            ON | {f"{SECTION}.comm_backend": "deepep"},
            {},
            [f"error expert-parallel-combination {SECTION}.comm_max_tokens_per_rank"],
        ),
        (
            ON | {f"{SECTION}.row_weighting_impl": "fused"},
            {},
            [f"error expert-parallel-combination {SECTION}.row_weighting_impl"],
        ),
        (
            ON | {f"{SECTION}.num_expert_groups": 2, f"{SECTION}.num_limited_groups": 3},
            {},
            [f"error expert-parallel-combination {SECTION}.num_limited_groups"],
        ),
        (ON | TENSOR | {SIZE: 1}, {}, [f"error expert-parallel-tensor {SIZE}"]),
        (
            ON | TENSOR | zero(2, offload_optimizer={"device": "cpu"}),
            {},
            ["error expert-parallel-tensor zero_optimization.offload_optimizer"],
        ),
        (
            ON
            | TENSOR
            | {"tensor_parallel.preset_model": "llama", f"{SECTION}.preset_model": "mixtral"},
            {},
            [f"error expert-parallel-tensor {SECTION}.preset_model"],
        ),
        (
            ON | zero(3, zero_hpz_partition_size=2, zero_quantized_gradients=True),
            {},
            [
                "error expert-parallel-zero-3 zero_optimization.zero_hpz_partition_size",
                "error expert-parallel-zero-3 zero_optimization.zero_quantized_gradients",
            ],
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
        (ON | zero(3), {"gpus": 8}),
        (ON | TENSOR | zero(2), {"gpus": 8}),
        (ON | {f"{SECTION}.enabled": False, SIZE: 0, f"{SECTION}.score_func": "relu"}, {"gpus": 6}),
        (
            ON | {f"{SECTION}.comm_backend": "deepep", f"{SECTION}.comm_max_tokens_per_rank": 4096},
            {},
        ),
        (ON | {f"{SECTION}.gate_up_impl": "fused"}, {}),
        ({SECTION: []}, {}),
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any], launch: dict[str, Any]) -> None:
    assert reported(RULES, keys, **launch) == []
