"""What gradients are sent in and how they are divided, against stage and precision."""

from typing import Any

import pytest

from autotune.lint.rules.communication import RULES
from tests.lint.rules.asking import reported, zero

BF16 = {"bf16.enabled": True}
SENT = "communication_data_type"
MANAGED = {"managed_gradient_accumulation": False}


@pytest.mark.parametrize(
    ("keys", "launch", "expected"),
    [
        (BF16 | {SENT: "fp16"}, {}, [f"warning communication-dtype {SENT}"]),
        (BF16 | {SENT: "FP16"}, {}, [f"warning communication-dtype {SENT}"]),
        ({SENT: "fp16"}, {}, [f"warning communication-dtype {SENT}"]),
        ({SENT: "bf16", "fp16.enabled": True}, {}, [f"warning communication-dtype {SENT}"]),
        (
            zero(2) | {"gradient_predivide_factor": 8},
            {},
            ["error gradient-division gradient_predivide_factor"],
        ),
        (
            zero(3) | {"prescale_gradients": True, "gradient_allreduce_op": "mean"},
            {},
            ["error gradient-division prescale_gradients"],
        ),
        (
            {"gradient_predivide_factor": 0.0},
            {},
            ["error gradient-predivide-zero gradient_predivide_factor"],
        ),
        (
            zero(3) | {"gradient_allreduce_op": "SUM"},
            {},
            ["error gradient-sum gradient_allreduce_op"],
        ),
        (
            {"gradient_allreduce_op": "sum", "compile.deepcompile": True},
            {},
            ["error gradient-sum gradient_allreduce_op"],
        ),
        (
            zero(2, zenflow={"topk_ratio": 0.1}) | {"gradient_allreduce_op": "sum"},
            {},
            ["error gradient-sum gradient_allreduce_op"],
        ),
        (
            zero(1, overlap_comm=True) | MANAGED,
            {},
            ["error unmanaged-accumulation zero_optimization.overlap_comm"],
        ),
        (
            zero(1) | MANAGED,
            {"pipeline_stages": 2},
            ["error unmanaged-accumulation managed_gradient_accumulation"],
        ),
        (
            MANAGED | {"compile.deepcompile": True},
            {},
            ["error unmanaged-accumulation managed_gradient_accumulation"],
        ),
    ],
)
def test_a_fault_is_found(
    keys: dict[str, Any], launch: dict[str, Any], expected: list[str]
) -> None:
    assert reported(RULES, keys, **launch) == expected


@pytest.mark.parametrize(
    "keys",
    [
        BF16 | {SENT: "bf16"},
        BF16 | {SENT: "fp32"},
        {SENT: "fp16", "fp16.enabled": "auto"},
        {"fp16.enabled": True, SENT: "fp16"},
        {SENT: 16},
        zero(0) | {"prescale_gradients": True, "gradient_predivide_factor": 8},
        zero(1) | {"prescale_gradients": True, "gradient_predivide_factor": 8},
        zero(2) | {"prescale_gradients": True, "gradient_allreduce_op": "sum"},
        zero(3, reduce_scatter=False) | {"prescale_gradients": True},
        zero(2) | {"prescale_gradients": False, "gradient_predivide_factor": 1.0},
        zero(2) | {"gradient_allreduce_op": "sum"},
        zero(3) | MANAGED,
        zero(1) | MANAGED,
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any]) -> None:
    assert reported(RULES, keys) == []
