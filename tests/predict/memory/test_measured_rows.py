"""The model against every measured row: the numbers that the project promises."""

import math
from collections.abc import Iterable

import pytest

from autotune.predict.memory.closed_form import estimate_closed_form
from tests.predict.rows import H200, Row, estimate, rows

COMPLETED = [row for row in rows() if row.completed]
OFFLOADED = [row for row in COMPLETED if row.measured["offload"] != "none"]


def mean(errors: Iterable[float]) -> float:
    sizes = [abs(error) for error in errors]
    return sum(sizes) / len(sizes)


def percentile_95(errors: Iterable[float]) -> float:
    sizes = sorted(abs(error) for error in errors)
    return sizes[math.ceil(0.95 * len(sizes)) - 1]


def test_all_rows_are_there() -> None:
    assert len(rows()) == 74
    assert len(COMPLETED) == 73
    assert len(OFFLOADED) == 13


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_allocated_after_init_is_within_0_3_percent(row: Row) -> None:
    allocated = estimate(row.name).device.init_allocated_bytes
    assert allocated is not None
    assert abs(row.error(allocated, "init_allocated_gib")) <= 0.003


def test_the_allocated_peak_is_within_a_percent() -> None:
    errors = [
        row.error(estimate(row.name).device.peak_allocated_bytes, "peak_allocated_gib")
        for row in COMPLETED
    ]
    assert mean(errors) <= 0.01
    assert percentile_95(errors) <= 0.03
    assert min(errors) >= -0.03


def test_the_reserved_peak_is_within_4_percent_on_average() -> None:
    errors = [
        row.error(estimate(row.name).device.peak_reserved_bytes or 0, "peak_reserved_gib")
        for row in COMPLETED
    ]
    assert mean(errors) <= 0.04
    assert percentile_95(errors) <= 0.15


def test_the_closed_form_is_within_4_percent_on_average_and_never_far_below() -> None:
    errors = [
        row.error(
            estimate_closed_form(
                row.training, workspace_bytes=H200.workspace_bytes
            ).peak_allocated_bytes,
            "peak_allocated_gib",
        )
        for row in COMPLETED
    ]
    assert mean(errors) <= 0.04
    assert min(errors) >= -0.10


@pytest.mark.parametrize("row", OFFLOADED, ids=lambda row: row.name)
def test_host_memory_of_offload_is_within_5_percent(row: Row) -> None:
    assert abs(row.error(estimate(row.name).host.rank_bytes, "host_rss_gib")) <= 0.05
