"""When the torch_autocast section works, and when it does not."""

from typing import Any

import pytest

from autotune.lint.rules.autocast import RULES
from tests.lint.rules.asking import reported, zero

ON = {"torch_autocast.enabled": True}
DTYPE = "torch_autocast.dtype"
MODULES = "torch_autocast.lower_precision_safe_modules"
BF16 = {"bf16.enabled": True}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (ON, [f"warning autocast-dtype {DTYPE}"]),
        (ON | BF16 | {DTYPE: "fp16"}, [f"error autocast-scaler {DTYPE}"]),
        (
            ON | {DTYPE: "bfloat16", MODULES: ["torch.nn.Linear", "Conv2d"]},
            [f"error autocast-modules {MODULES}"],
        ),
    ],
)
def test_a_fault_is_found(keys: dict[str, Any], expected: list[str]) -> None:
    assert reported(RULES, keys) == expected


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"torch_autocast.enabled": False, MODULES: ["Linear"]},
        ON | BF16 | {DTYPE: "bfloat16"},
        ON | {DTYPE: "float16"},
        ON | BF16 | zero(1) | {DTYPE: "float16"},
        ON | {DTYPE: "bf16", MODULES: ["torch.nn.Linear"]},
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any]) -> None:
    assert reported(RULES, keys) == []
