"""ZeRO's own conditions."""

from typing import Any

import pytest

from autotune.lint.rules.zero import RULES
from tests.lint.rules.asking import findings, reported, zero

NORM = "zero_optimization.compute_grad_norm"
NO_CLIPPING = {"gradient_clipping": 0}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (zero(0, compute_grad_norm=False), [f"error gradient-norm-stage {NORM}"]),
        (zero(3, compute_grad_norm="false"), [f"error gradient-norm-stage {NORM}"]),
        (zero(2, compute_grad_norm=False), ["error gradient-norm-needed gradient_clipping"]),
        (
            zero(2, compute_grad_norm=False, offload_optimizer={"device": "nvme"}) | NO_CLIPPING,
            [f"error gradient-norm-needed {NORM}"],
        ),
        (
            zero(1, compute_grad_norm=False, zenflow={}) | NO_CLIPPING,
            [f"error gradient-norm-needed {NORM}"],
        ),
        (zero(2, legacy_stage1=True), ["error legacy-stage-1 zero_optimization.legacy_stage1"]),
        ({"gradient_clipping": -1}, ["warning gradient-clipping gradient_clipping"]),
    ],
)
def test_a_fault_is_found(keys: dict[str, Any], expected: list[str]) -> None:
    assert reported(RULES, keys) == expected


@pytest.mark.parametrize(
    "keys",
    [
        {},
        zero(2, compute_grad_norm=True),
        zero(2, compute_grad_norm=False) | NO_CLIPPING,
        zero(2, compute_grad_norm=False) | {"gradient_clipping": "auto"},
        zero(1, compute_grad_norm=False, offload_optimizer={"device": "none"}) | NO_CLIPPING,
        zero(0, legacy_stage1=True),
        zero(1, legacy_stage1=True) | {"bf16.enabled": True, "data_types.grad_accum_dtype": "fp32"},
        zero(1, legacy_stage1=False),
        NO_CLIPPING,
        {"zero_optimization": False, "gradient_clipping": "auto"},
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any]) -> None:
    assert reported(RULES, keys) == []


def test_a_default_is_reported_as_one() -> None:
    [found] = findings(RULES, zero(2, compute_grad_norm=False))
    assert found.message.startswith("gradient_clipping=1.0 by default: ")
