"""Several trials at once: two CPU slots, one rank a trial."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.ds_config.build import build_ds_config
from autotune.evaluate import TrialRequest
from autotune.evaluate.measured import MeasuredEvaluator
from autotune.job.model_shape import PRESETS
from autotune.job.workload import Workload
from autotune.pool import machine
from autotune.pool.pool import Pool, PoolRequest
from autotune.pool.watcher import MARK_VARIABLE
from autotune.study.outcome import Outcome, Phase, Status
from autotune.trial.spec import TrialSpec
from tests import rank_processes
from tests.job.workloads import resolve_workload

pytestmark = pytest.mark.ray

OFFLOAD = {
    "zero_optimization.stage": 1,
    "zero_optimization.offload_optimizer.device": "cpu",
}
_REQUEST = PoolRequest(world_size=1, device_kind="cpu", model_type="llama")


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(_REQUEST) as pool:
        assert pool.num_groups == machine.num_cpus() >= 2
        yield pool


@pytest.fixture(scope="module")
def workload() -> Workload:
    return resolve_workload(
        PRESETS["tiny"], gpus=1, base={}, seq_len=32, global_batch_size=2, device_kind="cpu"
    )


@pytest.fixture
def evaluator(pool: Pool, workload: Workload, tmp_path: Path) -> MeasuredEvaluator:
    return MeasuredEvaluator(
        pool=pool, workload=workload, ceiling_bytes=1 << 30, seed=0, study_folder=tmp_path
    )


def _request(
    workload: Workload, number: int, values: dict[str, Any], **fields: Any
) -> TrialRequest:
    return TrialRequest(
        number=number,
        label=f"trial-{number:04d}",
        ds_config=build_ds_config(
            {}, workload, {"zero_optimization.reduce_bucket_size": 100_000} | values
        ),
        model_settings={},
        **fields,
    )


def test_two_trials_run_at_once_and_each_lists_the_other(
    evaluator: MeasuredEvaluator, workload: Workload, tmp_path: Path
) -> None:
    both_train = threading.Barrier(2)
    met: set[str] = set()

    def on_mark(label: str, _rank: int, phase: Phase, _where: str) -> None:
        if phase is Phase.STEADY and label not in met:
            met.add(label)
            both_train.wait(timeout=30)

    requests = [_request(workload, number, {"zero_optimization.stage": 1}) for number in (1, 2)]
    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(lambda r: evaluator.evaluate(r, on_mark), requests))
    assert [outcome.status for outcome in outcomes] == [Status.COMPLETE] * 2
    assert [outcome.neighbours for outcome in outcomes] == [(2,), (1,)]
    assert all((tmp_path / f"logs/trial-000{n}/rank-0.log").exists() for n in (1, 2))


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        pytest.param(OFFLOAD, {}, id="a trial with offload"),
        pytest.param({}, {"whole_steps": True}, id="a confirmation"),
    ],
)
def test_some_trials_run_alone(
    evaluator: MeasuredEvaluator, workload: Workload, values: dict[str, Any], fields: dict[str, Any]
) -> None:
    mark = os.environ[MARK_VARIABLE]
    most = 0

    def on_mark(_label: str, _rank: int, phase: Phase, _where: str) -> None:
        nonlocal most
        most = max(most, len(rank_processes.forks(mark)))

    requests = [
        _request(workload, 1, values, **fields),
        _request(workload, 2, {"zero_optimization.stage": 2}),
        _request(workload, 3, values, **fields),
    ]
    with ThreadPoolExecutor(3) as threads:
        outcomes: list[Outcome] = list(
            threads.map(lambda r: evaluator.evaluate(r, on_mark), requests)
        )
    assert [outcome.status for outcome in outcomes] == [Status.COMPLETE] * 3
    assert [outcome.neighbours for outcome in outcomes] == [(), (), ()]
    assert most == 1


def test_a_dead_parent_is_replaced_before_the_next_trial(
    pool: Pool, make_spec: Callable[..., TrialSpec]
) -> None:
    spec = make_spec(gpus=1)
    mark = os.environ[MARK_VARIABLE]
    dead = rank_processes.parents(mark)
    assert len(dead) == pool.num_groups
    for parent in dead:
        parent.kill()
    psutil.wait_procs(dead, timeout=5)
    run = pool.run(spec, number=1, alone=False, on_mark=lambda *_: None)
    assert run.reports[0].measurement is not None, run.reports[0].failure


def test_a_rank_runs_on_the_cpu_threads_that_it_was_given(
    evaluator: MeasuredEvaluator, workload: Workload, tmp_path: Path
) -> None:
    given = replace(evaluator, num_threads=3)
    outcomes = [
        each.evaluate(_request(workload, number, {}), lambda *_: None)
        for number, each in enumerate((given, evaluator))
    ]
    assert [outcome.status for outcome in outcomes] == [Status.COMPLETE] * 2
    share = evaluator.pool.threads_per_slot
    for number, threads in enumerate((3, share)):
        log = (tmp_path / f"logs/trial-000{number}/rank-0.log").read_text("utf-8")
        assert f"CPU threads: {threads}\n" in log


def test_a_closed_pool_leaves_no_process(pool: Pool) -> None:
    # The last test of this pool.
    mark = os.environ[MARK_VARIABLE]
    assert len(rank_processes.marked_processes(mark)) > 4
    pool.close()
    rank_processes.wait_until_none(lambda: rank_processes.marked_processes(mark), timeout_s=5)
    assert MARK_VARIABLE not in os.environ
