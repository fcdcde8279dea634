"""Which recorded point stands for a drawn one."""

import pytest

from autotune.replay.points import RecordedPoints
from autotune.space.proposal import Scalar
from autotune.study.candidate import Candidate
from tests.search.setting import small_space

SPACE = small_space(
    """
parameters:
  zero_optimization.stage: {choices: [1, 2, 3]}
  zero_optimization.reduce_bucket_size: {low: 100_000, high: 1_000_000_000, log: true}
  zero_optimization.stage3_prefetch_bucket_size:
    {low: 10_000, high: 1_000_000_000, log: true, when: {zero_optimization.stage: [3]}}
"""
)
STAGE = "zero_optimization.stage"
BUCKET = "zero_optimization.reduce_bucket_size"
PREFETCH = "zero_optimization.stage3_prefetch_bucket_size"


def candidate(stage: int, bucket: int, prefetch: int | None = None) -> Candidate:
    values: dict[str, Scalar] = {STAGE: stage, BUCKET: bucket}
    section = {"stage": stage, "reduce_bucket_size": bucket}
    if prefetch is not None:
        values[PREFETCH] = prefetch
        section["stage3_prefetch_bucket_size"] = prefetch
    return Candidate(
        source="sampled",
        ds_config={"zero_optimization": section},
        model_settings={},
        values=values,
    )


RECORDED = (
    candidate(1, 1_000_000),
    candidate(2, 100_000_000),
    candidate(2, 900_000_000),
    candidate(3, 1_000_000, 10_000),
    candidate(3, 1_000_000, 100_000_000),
)
POINTS = RecordedPoints.of((*RECORDED, RECORDED[0]), space=SPACE, world_size=8)


@pytest.mark.parametrize(
    ("drawn", "nearest"),
    [
        ({STAGE: 2, BUCKET: 300_000}, 1),  # the same stage weighs more than a size
        ({STAGE: 2, BUCKET: 310_000_000}, 2),  # on the logarithm's scale
        ({STAGE: 3, BUCKET: 1_000_000, PREFETCH: 500_000}, 3),
        ({STAGE: 3, BUCKET: 1_000_000, PREFETCH: 5_000_000}, 4),
        ({STAGE: 1, BUCKET: 1_000_000_000}, 0),
    ],
)
def test_the_nearest_recorded_point_stands_for_a_drawn_one(
    drawn: dict[str, Scalar], nearest: int
) -> None:
    assert POINTS.nearest(drawn, known=set()) == RECORDED[nearest]


def test_points_that_came_up_before_are_left_out() -> None:
    drawn: dict[str, Scalar] = {STAGE: 2, BUCKET: 100_000_000}
    known: set[str] = set()
    order = []
    while (found := POINTS.nearest(drawn, known=known)) is not None:
        known.add(found.identity(8))
        order.append(RECORDED.index(found))
    assert order[:2] == [1, 2]
    assert sorted(order) == [0, 1, 2, 3, 4]
