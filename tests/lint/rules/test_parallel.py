"""Pipeline, tensor, and sequence parallelism against ZeRO and the number of GPUs."""

from typing import Any

import pytest

from autotune.job.model_shape import PRESETS
from autotune.lint.rules.parallel import RULES
from tests.lint.rules.asking import reported, zero

AUTOTP = "tensor_parallel.autotp_size"
TP = "tensor_parallel.tp.tp_size"


@pytest.mark.parametrize(
    ("keys", "launch", "expected"),
    [
        (zero(2), {"pipeline_stages": 2}, ["error pipeline-zero-stage zero_optimization.stage"]),
        (zero(3), {"pipeline_stages": 4}, ["error pipeline-zero-stage zero_optimization.stage"]),
        ({AUTOTP: 2, TP: 4}, {}, [f"error tensor-parallel-size {TP}"]),
        ({AUTOTP: 8}, {"gpus": 12}, [f"error tensor-parallel-size {AUTOTP}"]),
        ({TP: 4}, {}, [f"warning tensor-parallel-off {TP}"]),
        (
            {AUTOTP: 16},
            {"gpus": 16, "model": PRESETS["34b"]},
            [f"warning tensor-parallel-heads {AUTOTP}"],
        ),
        (
            {"sequence_parallel_size": 4, "data_parallel_size": 4},
            {"gpus": 8},
            ["error sequence-parallel-size sequence_parallel_size"],
        ),
        (
            {"sequence_parallel_size": 3},
            {"gpus": 8},
            ["error sequence-parallel-size sequence_parallel_size"],
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
        (zero(2), {}),
        (zero(2), {"pipeline_stages": 1}),
        (zero(1), {"pipeline_stages": 4}),
        ({AUTOTP: 2, TP: 2}, {"gpus": 8}),
        ({AUTOTP: 2, TP: 1}, {}),
        ({AUTOTP: "${autotp_size}", TP: "auto"}, {"gpus": 8}),
        ({AUTOTP: 8}, {"gpus": 8, "model": PRESETS["7b"]}),
        ({"sequence_parallel_size": 2, "data_parallel_size": 4}, {"gpus": 8}),
        ({"sequence_parallel_size": 2, "data_parallel_size": 2}, {}),
        ({"sequence_parallel_size": 1}, {"gpus": 7}),
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any], launch: dict[str, Any]) -> None:
    assert reported(RULES, keys, **launch) == []
