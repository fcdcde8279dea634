"""The model against 50 rows that were measured before it knew what they are about.

The table in tests/data/h200_memory_more.md has each row's error then, and now that the causes of
the large ones have been found in the source; now it is no longer blind.
"""

import pytest

from autotune.job.ceiling import GIB
from tests.predict.rows import Row, estimate, more_rows

SKIPPED = "qgz-z3-n16"
"""Its steps were all skipped (nothing real was communicated), so that it has no moments."""
STEPPED = [row for row in more_rows() if row.completed and row.name != SKIPPED]
NOT_EXPLAINED = {"moe-z3-n8": -0.017}


def test_all_rows_are_there() -> None:
    assert len(more_rows()) == 50
    assert len(STEPPED) == 48


@pytest.mark.parametrize("row", more_rows(), ids=lambda row: row.name)
def test_allocated_after_init_is_within_0_1_percent(row: Row) -> None:
    allocated = estimate(row.name).device.init_allocated_bytes
    assert allocated is not None
    assert abs(row.error(allocated, "init_allocated_gib")) <= 0.001


@pytest.mark.parametrize("row", STEPPED, ids=lambda row: row.name)
def test_the_allocated_peak_is_within_0_4_percent(row: Row) -> None:
    error = row.error(estimate(row.name).device.peak_allocated_bytes, "peak_allocated_gib")
    assert min(NOT_EXPLAINED.get(row.name, 0), -0.004) <= error <= 0.004


def test_quantized_gradients_are_right_but_for_the_moments_of_skipped_steps() -> None:
    (row,) = [row for row in more_rows() if row.name == SKIPPED]
    device = estimate(row.name).device
    without = device.peak_allocated_bytes - device.items["moments"]
    assert abs(row.error(without, "peak_allocated_gib")) <= 0.001


def test_the_reserved_peak_is_within_2_percent_on_average() -> None:
    errors = [
        abs(row.error(estimate(row.name).device.peak_reserved_bytes or 0, "peak_reserved_gib"))
        for row in STEPPED
    ]
    assert sum(errors) / len(errors) <= 0.02
    assert sum(error <= 0.0025 for error in errors) >= 30


def test_host_memory_is_within_a_quarter_gib_of_offload_rows() -> None:
    offloaded = [r for r in STEPPED if r.training.zero.offload_optimizer.enabled]
    assert len(offloaded) == 3
    for row in offloaded:
        measured = row.gib("host_rss_gib")
        assert measured is not None
        assert abs(estimate(row.name).host.rank_bytes / GIB / measured - 1) <= 0.09
