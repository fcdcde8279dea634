"""fp16, bf16, loss scaling, master weights and data types."""

from typing import Any

import pytest

from autotune.lint.rules.precision import RULES
from tests.lint.rules.asking import reported, zero

FP16 = {"fp16.enabled": True}
BF16 = {"bf16.enabled": True}
CPU_ADAM = {"optimizer.type": "AdamW", **zero(2, offload_optimizer={"device": "cpu"})}
MASTER_16 = "fp16.fp16_master_weights_and_grads"
MASTER_B16 = "bf16.bf16_master_weights_and_grads"
STATES = "bf16.bf16_optimizer_states"
SUM = "data_types.grad_accum_dtype"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (FP16 | BF16, ["error two-precisions fp16.enabled", "error two-precisions bf16.enabled"]),
        (
            {"fp16.enabled": "true", "bfloat16.enabled": True},
            ["error two-precisions fp16.enabled", "error two-precisions bfloat16.enabled"],
        ),
        (FP16 | {"fp16.min_loss_scale": 0}, ["error loss-scaling fp16.min_loss_scale"]),
        (FP16 | {"fp16.loss_scale_window": -1}, ["error loss-scaling fp16.loss_scale_window"]),
        (
            FP16 | {"fp16.initial_scale_power": 200},
            ["warning initial-loss-scale fp16.initial_scale_power"],
        ),
        (
            FP16 | {"fp16.initial_scale_power": -1},
            ["warning initial-loss-scale fp16.initial_scale_power"],
        ),
        ({MASTER_16: True}, [f"error master-weights-stage {MASTER_16}"]),
        (BF16 | zero(2) | {STATES: True}, [f"error master-weights-stage {STATES}"]),
        (FP16 | zero(3) | {MASTER_16: True}, [f"error master-weights-offload {MASTER_16}"]),
        (
            BF16 | CPU_ADAM | {MASTER_B16: True, "optimizer.params.torch_adam": True},
            [f"error master-weights-offload {MASTER_B16}"],
        ),
        (FP16 | {SUM: "fp32"}, [f"error gradient-accumulation-dtype {SUM}"]),
        ({SUM: "bf16"}, [f"error gradient-accumulation-dtype {SUM}"]),
        (BF16 | zero(2) | {SUM: "int8"}, [f"error gradient-accumulation-dtype {SUM}"]),
        (BF16 | zero(2) | {SUM: "half"}, [f"warning gradient-accumulation-dtype {SUM}"]),
        (
            FP16 | {"data_types.param_dtype": "bf16"},
            ["error parameter-dtype data_types.param_dtype"],
        ),
        (BF16 | {"fp16.auto_cast": True}, ["warning input-cast fp16.auto_cast"]),
        ({"fp16.auto_cast": True}, ["warning input-cast fp16.auto_cast"]),
    ],
)
def test_a_fault_is_found(keys: dict[str, Any], expected: list[str]) -> None:
    assert reported(RULES, keys) == expected


@pytest.mark.parametrize(
    "keys",
    [
        {},
        BF16 | {"fp16.enabled": False, "fp16.loss_scale": 0, "fp16.min_loss_scale": 0},
        BF16 | {"fp16.enabled": "auto"},
        {"fp16.enabled": "auto", "bf16.enabled": "auto", "fp16.auto_cast": True},
        FP16 | {"fp16.auto_cast": True, "fp16.initial_scale_power": 32},
        FP16 | {"fp16.loss_scale": 128, "fp16.min_loss_scale": 0, "fp16.initial_scale_power": 99},
        FP16 | CPU_ADAM | {MASTER_16: True},
        BF16 | CPU_ADAM | {MASTER_B16: True},
        BF16 | zero(1) | {MASTER_B16: True, STATES: True},
        BF16 | zero(1) | {SUM: "fp32"},
        BF16 | zero(1) | {SUM: "fp32", MASTER_B16: True},
        BF16 | {SUM: "bfloat16", "data_types.param_dtype": "torch.bfloat16"},
        {SUM: "fp32", "bf16.enabled": "auto"},
        {"fp16": True, "bf16": []},
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any]) -> None:
    assert reported(RULES, keys) == []
