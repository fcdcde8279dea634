"""ZenFlow's conditions."""

from typing import Any

import pytest

from autotune.lint.rules.zenflow import RULES
from tests.lint.rules.asking import reported, zero

ZENFLOW = "zero_optimization.zenflow"
CPU = {"device": "cpu"}
ADAMW = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}


def _zenflow(**keys: Any) -> dict[str, Any]:
    return ADAMW | zero(2, offload_optimizer=CPU, overlap_comm=True, zenflow=keys)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (zero(0, zenflow={"topk_ratio": 0.1}), [f"error zenflow-stage {ZENFLOW}"]),
        (zero(1, zenflow={"topk_ratio": 0.1}), [f"error zenflow-offload {ZENFLOW}"]),
        (
            _zenflow(offload=True) | {"zero_optimization.overlap_comm": False},
            [f"error zenflow-offload {ZENFLOW}.offload"],
        ),
        (
            zero(3, offload_optimizer=CPU, overlap_comm=False, zenflow={"offload": True}),
            [f"error zenflow-offload {ZENFLOW}.offload"],
        ),
        (_zenflow(select_interval=5), [f"error zenflow-interval {ZENFLOW}.select_interval"]),
        (
            _zenflow(select_strategy="epoch"),
            [f"error zenflow-interval {ZENFLOW}.select_interval"],
        ),
        (
            _zenflow(select_strategy="step", select_interval=2, update_interval=3),
            [f"error zenflow-interval {ZENFLOW}.select_interval"],
        ),
        (
            _zenflow() | {"optimizer.params.adam_w_mode": True},
            ["error zenflow-optimizer optimizer.params.adam_w_mode"],
        ),
    ],
)
def test_a_fault_is_found(keys: dict[str, Any], expected: list[str]) -> None:
    assert reported(RULES, keys) == expected


@pytest.mark.parametrize(
    "keys",
    [
        {},
        zero(2, zenflow=None),
        _zenflow(),
        _zenflow(offload=True),
        _zenflow(select_strategy="step", select_interval=3, update_interval=3),
        _zenflow(select_strategy="epoch", select_interval=1, update_interval=3),
        zero(3, offload_optimizer=CPU, zenflow={"offload": True}),
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any]) -> None:
    assert reported(RULES, keys) == []
