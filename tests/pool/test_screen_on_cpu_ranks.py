"""What the screen rejects really does not fit: launched all the same, on two real CPU ranks."""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.ds_config.build import MICRO_BATCH
from autotune.evaluate import TrialRequest
from autotune.evaluate.measured import MeasuredEvaluator
from autotune.job.device import known_device
from autotune.job.model_shape import load_model_shape
from autotune.pool.pool import Pool, PoolRequest
from autotune.search.memory_screen import Screen
from autotune.space import load_space
from autotune.study.candidate import Candidate, candidate_of_proposal
from autotune.study.outcome import Status
from tests.job.workloads import resolve_workload

pytestmark = pytest.mark.ray

CEILING_BYTES = 600 * 2**20
WORKLOAD = resolve_workload(
    load_model_shape("tiny"), gpus=2, base={}, global_batch_size=128, device_kind="cpu"
)
SPACE = load_space("zero").bind(WORKLOAD)


def _candidate(stage: int, micro_batch: int, bucket: int, **zero: Any) -> Candidate:
    values = {
        "zero_optimization.stage": stage,
        MICRO_BATCH: micro_batch,
        "zero_optimization.reduce_bucket_size": bucket,
        **{f"zero_optimization.{key}": value for key, value in zero.items()},
    }
    return candidate_of_proposal(SPACE.canonical(values), SPACE, base={}, workload=WORKLOAD)


REJECTED = {
    "stage 1, buckets just over": _candidate(1, 16, 300_000_000),
    "stage 1, large buckets": _candidate(1, 8, 500_000_000),
    "stage 2, buckets just over": _candidate(2, 16, 300_000_000),
    "stage 2, large micro batch": _candidate(2, 32, 300_000_000),
    "stage 2, large buckets": _candidate(2, 1, 500_000_000),
    "stage 3, buckets just over": _candidate(3, 16, 300_000_000),
    "stage 3, large micro batch": _candidate(3, 64, 200_000_000),
    "stage 3, large buckets": _candidate(3, 1, 500_000_000),
}
"""Predicted to need 653 to 1054 MiB."""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(PoolRequest(world_size=2, device_kind="cpu", model_type="llama")) as pool:
        yield pool


@pytest.fixture(scope="module")
def screen(pool: Pool) -> Screen:
    return Screen(
        workload=WORKLOAD,
        device=known_device(pool.device_model, memory_bytes=pool.device_bytes),
        ceiling_bytes=CEILING_BYTES,
    )


@pytest.mark.parametrize("name", REJECTED)
def test_no_rejection_is_false(name: str, pool: Pool, screen: Screen, tmp_path: Path) -> None:
    candidate = REJECTED[name]
    assert screen.judge(candidate) is not None
    evaluator = MeasuredEvaluator(
        pool=pool, workload=WORKLOAD, ceiling_bytes=CEILING_BYTES, seed=1, study_folder=tmp_path
    )
    request = TrialRequest(
        number=0,
        label="trial",
        ds_config=candidate.ds_config,
        model_settings=candidate.model_settings,
    )
    outcome = evaluator.evaluate(request, lambda *_: None)
    assert outcome.status is Status.OVER_CEILING, outcome.failure


def test_a_judgement_takes_less_than_the_tuners_share_of_a_trial(screen: Screen) -> None:
    took_s = []
    for candidate in REJECTED.values():
        for stage in (0, 1, 2, 3):
            values = {**candidate.values, "zero_optimization.stage": stage}
            again = candidate_of_proposal(
                SPACE.canonical(values), SPACE, base={}, workload=WORKLOAD
            )
            began = time.perf_counter()
            screen.judge(again)
            took_s.append(time.perf_counter() - began)
    assert statistics.median(took_s) < 0.15
