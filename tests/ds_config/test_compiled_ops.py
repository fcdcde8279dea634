from typing import Any

import pytest

from autotune.ds_config.compiled_ops import compiled_ops
from autotune.job.model_shape import PRESETS
from autotune.space import load_space
from autotune.space.needed_ops import needed_ops
from tests.job.workloads import resolve_workload

OPTIMIZER = "zero_optimization.offload_optimizer.device"
PARAM = "zero_optimization.offload_param.device"


@pytest.mark.parametrize(
    ("optimizer", "devices", "ops"),
    [
        ({"type": "AdamW"}, ["none"], ("fused_adam",)),
        ({"type": "Adam"}, ["none", "cpu"], ("fused_adam", "cpu_adam")),
        ({"type": "adamw"}, ["cpu"], ("cpu_adam",)),
        ({"type": "AdamW", "params": {"torch_adam": True}}, ["none", "cpu"], ()),
        ({"type": "Lion"}, ["none", "cpu"], ("fused_lion", "cpu_lion")),
        ({"type": "Lamb"}, ["none", "cpu"], ("fused_lamb",)),
        ({"type": "Adagrad"}, ["none"], ()),
        ({"type": "Adagrad"}, ["cpu"], ("cpu_adagrad",)),
        ({"type": "SGD"}, ["none"], ()),
        ({"type": "AdamW"}, ["nvme"], ("cpu_adam", "async_io")),
    ],
)
def test_an_optimizer_loads_what_deepspeeds_engine_does(
    optimizer: dict[str, Any], devices: list[str], ops: tuple[str, ...]
) -> None:
    assert compiled_ops(optimizer, {OPTIMIZER: devices}) == ops


def test_nvme_for_weights_alone_needs_its_op_too() -> None:
    assert compiled_ops({"type": "SGD"}, {PARAM: ["none", "nvme"]}) == ("async_io",)


def test_quantized_collectives_need_the_quantizer() -> None:
    key = "zero_optimization.zero_quantized_gradients"
    assert compiled_ops({"type": "SGD"}, {key: [False, True]}) == ("quantizer",)
    assert compiled_ops({"type": "SGD"}, {key: [False]}) == ()


@pytest.mark.parametrize(
    ("base", "ops"),
    [
        ({}, ("fused_adam", "cpu_adam")),
        # Searched all the same.
        ({"zero_optimization": {"cpu_offload": True}}, ("fused_adam", "cpu_adam")),
        (
            {"zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/x"}}},
            ("fused_adam", "cpu_adam", "async_io"),
        ),
        ({"zero_optimization": {"zero_quantized_weights": True}},
         ("fused_adam", "cpu_adam", "quantizer")),
        ({"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}}, ()),
    ],
)  # fmt: skip
def test_a_study_needs_what_its_space_and_its_base_allow(
    base: dict[str, Any], ops: tuple[str, ...]
) -> None:
    workload = resolve_workload(PRESETS["7b"], gpus=8, base=base, device_kind="cuda")
    assert needed_ops(load_space("zero").bind(workload, base), workload, base) == ops
