"""Paths, buffers and file access of offload to NVMe."""

from typing import Any

import pytest

from autotune.job.model_shape import PRESETS
from autotune.lint.rules.nvme import RULES
from tests.lint.rules.asking import findings, reported, zero

PARAM = "zero_optimization.offload_param"
OPTIMIZER = "zero_optimization.offload_optimizer"
SEVEN_B = PRESETS["7b"]


def _nvme(**keys: Any) -> dict[str, Any]:
    return {"device": "nvme", "nvme_path": "/local_nvme"} | keys


@pytest.mark.parametrize(
    ("keys", "launch", "expected"),
    [
        (
            zero(3, offload_param={"device": "nvme"}, offload_optimizer={"device": "nvme"}),
            {},
            [f"error nvme-path {PARAM}.nvme_path", f"error nvme-path {OPTIMIZER}.nvme_path"],
        ),
        (
            zero(3, offload_param=_nvme(nvme_path=None)),
            {},
            [f"error nvme-path {PARAM}.nvme_path"],
        ),
        (
            zero(3, offload_param=_nvme(buffer_size=1e8)),
            {"gpus": 1, "largest_parameter": 524_709_888},
            [f"error nvme-buffer-size {PARAM}.buffer_size"],
        ),
        (
            zero(3, offload_param=_nvme()),
            {"gpus": 1, "model": SEVEN_B},
            [f"error nvme-buffer-size {PARAM}.buffer_size"],
        ),
        (
            zero(3, offload_param=_nvme()),  # 1e8: not even a small model's embedding
            {"gpus": 1},
            [f"error nvme-buffer-size {PARAM}.buffer_size"],
        ),
        (
            zero(3, offload_param=_nvme(buffer_size=1.2e8)),
            {"gpus": 1},
            [f"warning nvme-buffer-size {PARAM}.buffer_size"],
        ),
        (
            zero(3, offload_param=_nvme(buffer_count=0)),
            {},
            [f"error nvme-buffer-count {PARAM}.buffer_count"],
        ),
        (
            zero(3, offload_optimizer=_nvme(buffer_count=3)) | {"optimizer.type": "AdamW"},
            {},
            [f"error nvme-buffer-count {OPTIMIZER}.buffer_count"],
        ),
        (
            zero(3, offload_optimizer=_nvme(pipeline_read=True, buffer_count=4))
            | {"optimizer.type": "Adam"},
            {"gpus": 2, "num_parameters": 13_000_000_000},
            [f"warning nvme-buffer-count {OPTIMIZER}.buffer_count"],
        ),
        (
            zero(3, offload_param=_nvme()) | {"aio.block_size": 0, "aio.queue_depth": -1},
            {},
            ["error aio-value aio.block_size", "error aio-value aio.queue_depth"],
        ),
        (
            zero(3, offload_param=_nvme()) | {"aio.block_size": 1000},
            {},
            ["warning aio-alignment aio.block_size"],
        ),
        ({"aio.use_gds": True}, {}, ["note gds-device aio.use_gds"]),
    ],
)
def test_a_fault_is_found(
    keys: dict[str, Any], launch: dict[str, Any], expected: list[str]
) -> None:
    assert reported(RULES, keys, **launch) == expected


@pytest.mark.parametrize(
    ("keys", "launch"),
    [
        (zero(3, offload_param=_nvme(), offload_optimizer=_nvme()), {}),
        (zero(3, offload_param={"device": "cpu"}, offload_optimizer={"device": "none"}), {}),
        (zero(2, offload_optimizer={"device": "nvme"}), {}),
        (zero(3, offload_param=_nvme()), {"gpus": 8, "model": SEVEN_B}),
        (zero(3, offload_param=_nvme(buffer_size=2e8)), {"gpus": 1, "model": SEVEN_B}),
        (zero(3, offload_param=_nvme(buffer_size=10)), {"gpus": 8, "largest_parameter": 1000}),
        (zero(3, offload_optimizer=_nvme(buffer_count=4)) | {"optimizer.type": "AdamW"}, {}),
        (zero(3, offload_optimizer=_nvme(buffer_count=3)), {}),
        (
            zero(3, offload_optimizer=_nvme(pipeline_read=True)) | {"optimizer.type": "AdamW"},
            {"gpus": 64, "num_parameters": 13_000_000_000},
        ),
        ({"aio.block_size": 1000, "aio.queue_depth": 0}, {}),
        (zero(3, offload_param=_nvme()) | {"aio.block_size": 262_144}, {}),
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any], launch: dict[str, Any]) -> None:
    assert reported(RULES, keys, **launch) == []


def test_the_size_that_would_do_is_named() -> None:
    keys = zero(3, offload_param=_nvme(buffer_size=100_000_000))
    [found] = findings(RULES, keys, gpus=2, largest_parameter=524_709_889)
    assert found.message.endswith(
        "the largest parameter has 262354945 elements on each of 2 ranks, and must fit one buffer"
    )
