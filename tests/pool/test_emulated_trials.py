"""One CPU slot that plays one rank of many, with real DeepSpeed: one pool for all tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.ds_config.build import build_ds_config
from autotune.evaluate import TrialRequest
from autotune.evaluate.emulated import EmulatedEvaluator
from autotune.evaluate.judge_reports import outcome_of
from autotune.job.model_shape import PRESETS
from autotune.pool import machine
from autotune.pool.pool import Pool, PoolRequest
from autotune.predict.links.communication import PCIE_SHARE, Links
from autotune.predict.links.networks import Network
from autotune.study.outcome import Outcome, Phase, Status
from autotune.trial.spec import Emulation, StepRule, TrialSpec
from tests.job.workloads import resolve_workload

pytestmark = pytest.mark.ray

MakeSpec = Callable[..., TrialSpec]
STAGE = "zero_optimization.stage"
OFFLOAD_OPTIMIZER = "zero_optimization.offload_optimizer.device"
OFFLOAD_PARAM = "zero_optimization.offload_param.device"
HPZ = "zero_optimization.zero_hpz_partition_size"
_ONE_STEP = StepRule(min_steps=1, max_steps=1)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    # More ranks than this machine has CPUs, or any machine.
    request = PoolRequest(world_size=4096, device_kind="cpu", model_type="llama", emulate=True)
    with Pool(request) as pool:
        yield pool


def _run(pool: Pool, spec: TrialSpec) -> Outcome:
    run = pool.run(spec, number=1, alone=False, on_mark=lambda *_: None)
    return outcome_of(
        run.reports, spec, evaluator="emulated", tokens_per_step=512, duration_s=run.duration_s
    )


def _emulated(
    make_spec: MakeSpec,
    values: dict[str, Any],
    *,
    ranks: int = 4,
    local: int = 4,
    host_bytes: int = 1 << 40,
    links: Links | None = None,
    **fields: Any,
) -> TrialSpec:
    emulation = Emulation(
        rank=ranks - 1 if values[STAGE] == 2 else 0,
        world_size=ranks,
        local_world_size=local,
        host_bytes=host_bytes,
        links=links.to_json() if links else None,
    )
    return make_spec(values, gpus=ranks, global_batch_size=2 * ranks, emulation=emulation, **fields)


def test_there_is_a_place_for_each_slot(pool: Pool) -> None:
    assert pool.emulates
    assert pool.num_groups == pool.num_devices == machine.num_cpus()


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({STAGE: 0}, id="stage 0"),
        pytest.param({STAGE: 1}, id="stage 1"),
        pytest.param({STAGE: 2}, id="stage 2"),
        pytest.param({STAGE: 3}, id="stage 3"),
        pytest.param({STAGE: 2, OFFLOAD_OPTIMIZER: "cpu"}, id="stage 2, optimizer offloaded"),
        pytest.param(
            {STAGE: 3, OFFLOAD_PARAM: "cpu", OFFLOAD_OPTIMIZER: "cpu"}, id="stage 3, all offloaded"
        ),
    ],
)
def test_one_rank_of_four_trains(pool: Pool, make_spec: MakeSpec, values: dict[str, Any]) -> None:
    spec = _emulated(make_spec, values)
    outcome = _run(pool, spec)
    assert outcome.status is Status.COMPLETE, outcome.failure
    (rank,) = outcome.measured.ranks
    assert rank.rank == (3 if values[STAGE] == 2 else 0)
    assert len(rank.boundary_s) == spec.steps.max_steps
    assert [memory.phase for memory in rank.memory] == list(Phase)


@pytest.mark.parametrize(
    ("ranks", "values"),
    [
        pytest.param(2, {STAGE: 3}, id="2"),
        pytest.param(1024, {STAGE: 2}, id="1024, stage 2"),
        pytest.param(1024, {STAGE: 3}, id="1024, stage 3"),
        pytest.param(1024, {STAGE: 3, HPZ: 8}, id="1024, hpZ"),
    ],
)
def test_worlds_of_2_to_1024(
    pool: Pool, make_spec: MakeSpec, ranks: int, values: dict[str, Any]
) -> None:
    outcome = _run(pool, _emulated(make_spec, values, ranks=ranks, local=min(ranks, 8)))
    assert outcome.status is Status.COMPLETE, outcome.failure


@pytest.mark.parametrize("stage", [2, 3])
def test_collectives_take_the_time_that_the_links_need(
    pool: Pool, make_spec: MakeSpec, stage: int
) -> None:
    rate = 1e7
    slow = Links(
        local_bytes_per_s=rate,
        network=Network(name="none", port_bytes_per_s=rate, share=1.0),
        source="catalogue",
    )
    outcome = _run(pool, _emulated(make_spec, {STAGE: stage}, links=slow, steps=_ONE_STEP))
    assert outcome.status is Status.COMPLETE, outcome.failure
    # A million parameters of bf16 are gathered and reduced at least once a step, three quarters of
    # them over the link. Sleep has a least duration on a busy machine too; without it a step takes
    # a tenth of this.
    assert min(outcome.measured.all_step_s) > 0.75 * 2 * 2e6 / (PCIE_SHARE * rate)


def test_the_more_ranks_the_less_each_of_them_holds(pool: Pool, make_spec: MakeSpec) -> None:
    wide = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 2}
    peaks = []
    for ranks in (2, 16):
        spec = _emulated(make_spec, {STAGE: 3}, ranks=ranks, local=2, steps=_ONE_STEP)
        spec_json = spec.to_json()
        spec_json["hf_config"] = {**spec_json["hf_config"], **wide}
        outcome = _run(pool, TrialSpec.from_json(spec_json))
        assert outcome.status is Status.COMPLETE, outcome.failure
        peaks.append(outcome.measured.peak_bytes)
    assert peaks[1] < 0.8 * peaks[0]


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_numbers_that_overflow_stop_nothing(pool: Pool, make_spec: MakeSpec, stage: int) -> None:
    # The first step leaves weights that give no finite loss; real ranks would skip all the others.
    spec_json = _emulated(make_spec, {STAGE: stage}).to_json()
    spec_json["ds_config"]["optimizer"]["params"]["lr"] = 1e37
    outcome = _run(pool, TrialSpec.from_json(spec_json))
    assert outcome.status is Status.COMPLETE, outcome.failure


@pytest.mark.parametrize("stage", [0, 3])
def test_the_same_weights_need_no_other_rank(pool: Pool, make_spec: MakeSpec, stage: int) -> None:
    spec = _emulated(make_spec, {STAGE: stage}, same_weights=True, steps=_ONE_STEP)
    outcome = _run(pool, spec)
    assert outcome.status is Status.COMPLETE, outcome.failure


def test_a_rank_beyond_its_share_of_the_host_is_reported(pool: Pool, make_spec: MakeSpec) -> None:
    spec = _emulated(make_spec, {STAGE: 2}, host_bytes=64 << 20)
    outcome = _run(pool, spec)
    assert outcome.status is Status.OOM_HOST
    assert outcome.failure is not None
    assert "with 4 ranks on a node like this one each has 0.06 GiB" in outcome.failure.reason
    assert outcome.measurement is not None


def test_what_real_ranks_need_beside_is_kept_free(pool: Pool, make_spec: MakeSpec) -> None:
    ceiling_bytes = 2 << 30
    bucket = {STAGE: 2, "zero_optimization.reduce_bucket_size": 200_000_000}
    fits = _emulated(make_spec, bucket, ceiling_bytes=ceiling_bytes)
    assert _run(pool, fits).status is Status.COMPLETE
    spec_json = fits.to_json()
    spec_json["emulation"]["charged_bytes"] = ceiling_bytes - (256 << 20)
    outcome = _run(pool, TrialSpec.from_json(spec_json))
    assert outcome.status is Status.OVER_CEILING, outcome
    assert outcome.failure is not None
    assert outcome.failure.needed_bytes is not None
    assert outcome.charged_bytes + outcome.failure.needed_bytes > ceiling_bytes


def test_an_emulated_rank_runs_on_the_cpu_threads_that_it_was_given(
    pool: Pool, tmp_path: Path
) -> None:
    workload = resolve_workload(
        PRESETS["tiny"], gpus=4, base={}, seq_len=32, global_batch_size=4, device_kind="cpu"
    )
    evaluator = EmulatedEvaluator(
        pool=pool,
        workload=workload,
        ceiling_bytes=1 << 30,
        gpus_per_node=4,
        seed=0,
        study_folder=tmp_path,
        num_threads=3,
    )
    request = TrialRequest(
        number=1,
        label="trial-0001",
        ds_config=build_ds_config(
            {}, workload, {STAGE: 1, "zero_optimization.reduce_bucket_size": 100_000}
        ),
        model_settings={},
    )
    outcome = evaluator.evaluate(request, lambda *_: None)
    assert outcome.status is Status.COMPLETE, outcome.failure
    log = (tmp_path / "logs/trial-0001/rank-0.log").read_text("utf-8")
    assert "CPU threads: 3\n" in log
