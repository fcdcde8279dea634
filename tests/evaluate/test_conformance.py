from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.evaluate.measured import MeasuredEvaluator
from autotune.job.model_shape import load_model_shape
from autotune.job.workload import Workload
from autotune.pool.pool import Pool, PoolRequest
from tests.evaluate.conformance import CHECKS, Check, Subject
from tests.evaluate.fake import FakeEvaluator
from tests.job.workloads import resolve_workload

CEILING_BYTES = 512 * 2**20


@pytest.fixture(scope="module")
def workload() -> Workload:
    return resolve_workload(
        load_model_shape("tiny"),
        gpus=1,
        base={},
        seq_len=64,
        global_batch_size=8,
        device_kind="cpu",
    )


@pytest.fixture(scope="module")
def measured(workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    folder: Path = tmp_path_factory.mktemp("study")
    request = PoolRequest(world_size=1, device_kind="cpu", model_type="llama")
    with Pool(request) as pool:
        evaluator = MeasuredEvaluator(
            pool=pool, workload=workload, ceiling_bytes=CEILING_BYTES, seed=1, study_folder=folder
        )
        yield Subject(evaluator=evaluator, workload=workload, study_folder=folder)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_fake_conforms(check: Check, workload: Workload) -> None:
    evaluator = FakeEvaluator(
        workload=workload, ceiling_bytes=CEILING_BYTES, capacity=3, delay_s=0.01
    )
    check(Subject(evaluator=evaluator, workload=workload))


@pytest.mark.ray
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_measured_evaluator_conforms(check: Check, measured: Subject) -> None:
    check(measured)


@pytest.mark.ray
def test_the_measured_evaluator_has_a_place_for_each_cpu(measured: Subject) -> None:
    from autotune.pool import machine

    assert measured.evaluator.capacity == machine.num_cpus()
