"""The emulated evaluator on CPU slots. Last the conformance kit, which ends the evaluator."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import WorkloadError
from autotune.evaluate.emulated import EmulatedEvaluator, charged_bytes
from autotune.evaluate.factory import describe_choice, describe_shares, make_evaluator
from autotune.evaluate.options import EvaluatorOptions
from autotune.job.model_shape import load_model_shape
from autotune.job.workload import Workload
from autotune.pool.pool import Pool, PoolRequest
from autotune.predict.memory.predict import NCCL_BYTES, peak_rank
from autotune.predict.training_job import ModelSettings, read_training
from tests.evaluate.conformance import CHECKS, Check, Subject
from tests.job.workloads import resolve_workload

CEILING_BYTES = 512 * 2**20
RANKS = 4


@pytest.fixture(scope="module")
def workload() -> Workload:
    return resolve_workload(
        load_model_shape("tiny"),
        gpus=RANKS,
        base={},
        seq_len=64,
        global_batch_size=8 * RANKS,
        device_kind="cpu",
    )


@pytest.fixture(scope="module")
def evaluator(
    workload: Workload, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmulatedEvaluator]:
    request = PoolRequest(world_size=RANKS, device_kind="cpu", model_type="llama", emulate=True)
    with Pool(request) as pool:
        evaluator = make_evaluator(
            pool,
            workload=workload,
            ceiling_bytes=CEILING_BYTES,
            gpus_per_node=RANKS,
            seed=1,
            study_folder=tmp_path_factory.mktemp("study"),
        )
        assert isinstance(evaluator, EmulatedEvaluator)
        yield evaluator


@pytest.fixture(scope="module")
def subject(evaluator: EmulatedEvaluator) -> Subject:
    return Subject(
        evaluator=evaluator,
        workload=evaluator.workload,
        study_folder=evaluator.study_folder,
        ranks=(0,),
    )


class _Machine:
    """What the evaluator asks of a pool, for a machine that is not there."""

    def __init__(self, *, devices: int, cpus: int, memory_bytes: int, kind: str = "cuda") -> None:
        self.request = PoolRequest(world_size=64, device_kind=kind, model_type="llama")
        self.num_devices = self.num_groups = devices
        self.emulates = devices < 64
        self.host_cpus = cpus
        self.host_memory_bytes = memory_bytes
        self.threads_per_slot = max(1, cpus // devices)


def _on(machine: _Machine, workload: Workload, *, gpus_per_node: int) -> EmulatedEvaluator:
    evaluator = make_evaluator(
        machine,  # type: ignore[arg-type]
        workload=replace(workload, world_size=64, global_batch_size=512),
        ceiling_bytes=CEILING_BYTES,
        gpus_per_node=gpus_per_node,
        seed=1,
        study_folder=Path("nowhere"),
    )
    assert isinstance(evaluator, EmulatedEvaluator)
    return evaluator


@pytest.mark.parametrize(
    ("devices", "gpus_per_node", "threads", "host_bytes"),
    [
        pytest.param(1, 8, 12, 16_000, id="one device: the share of eight"),
        pytest.param(1, 1, 96, 128_000, id="a node of one has it all"),
        pytest.param(8, 2, 12, 64_000, id="never more than the pool's own share"),
        pytest.param(1, 64, 1, 2_000, id="a big node"),
    ],
)
def test_the_host_is_divided_as_among_the_ranks_of_a_node(
    workload: Workload, devices: int, gpus_per_node: int, threads: int, host_bytes: int
) -> None:
    machine = _Machine(devices=devices, cpus=96, memory_bytes=128_000)
    evaluator = _on(machine, workload, gpus_per_node=gpus_per_node)
    shares = describe_shares(evaluator)
    assert shares == {"threads_per_rank": threads, "host_bytes_per_rank": host_bytes}
    emulation = evaluator.terms.emulation
    assert emulation is not None
    assert (emulation.world_size, emulation.local_world_size) == (64, gpus_per_node)
    assert emulation.charged_bytes == NCCL_BYTES


def test_only_ranks_that_would_use_nccl_are_charged_for_it(workload: Workload) -> None:
    assert charged_bytes(workload, "cuda") == NCCL_BYTES
    assert charged_bytes(workload, "cpu") == 0
    assert charged_bytes(replace(workload, world_size=1, global_batch_size=8), "cuda") == 0


def test_the_choice_of_auto_is_printed_with_its_caveats() -> None:
    one = _Machine(devices=1, cpus=16, memory_bytes=1)
    text = describe_choice(one, "none")  # type: ignore[arg-type]
    assert "--evaluator auto: emulated, 1 device for 64 ranks: one device plays one rank" in text
    assert "communication time" in text
    many = _Machine(devices=64, cpus=16, memory_bytes=1)
    text = describe_choice(many, None)  # type: ignore[arg-type]
    assert text == "--evaluator auto: measured, 64 devices for 64 ranks"


@pytest.mark.parametrize(
    ("gpus", "given", "expected"), [(64, None, 8), (4, None, 4), (64, 16, 16), (1, None, 1)]
)
def test_a_node_has_up_to_eight_ranks_by_default(
    gpus: int, given: int | None, expected: int
) -> None:
    evaluator_options = EvaluatorOptions(evaluator="emulated", gpus=gpus, gpus_per_node=given)
    evaluator_options.check()
    assert evaluator_options.gpus_per_node_of("emulated") == expected


@pytest.mark.ray
def test_at_stage_2_the_rank_with_the_peak_is_played_and_named(
    subject: Subject, evaluator: EmulatedEvaluator
) -> None:
    request = subject.request("largest", stage=2, reduce_bucket_size=100_000)
    settings = ModelSettings.of_trial(request.model_settings)
    training = read_training(request.ds_config, subject.workload, settings)
    largest = peak_rank(training, evaluator.device)
    assert largest != 0
    outcome = subject.evaluate(request)
    assert [rank.rank for rank in outcome.measured.ranks] == [largest]
    (log,) = (subject.study_folder or Path()).glob("logs/largest/*")
    assert log.name == f"rank-{largest}.log"
    slow = subject.evaluate(replace(request, label="slow", best_tokens_per_s=1e12))
    assert slow.failure is not None
    assert slow.failure.rank == largest
    assert slow.failure.log == f"logs/slow/rank-{largest}.log"


@pytest.mark.ray
def test_where_the_memory_model_cannot_say_the_last_rank_is_played(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def largest(*_: object) -> int:
        raise WorkloadError("cannot be traced")

    monkeypatch.setattr("autotune.evaluate.emulated.peak_rank", largest)
    for stage, played in ((2, RANKS - 1), (1, 0)):
        request = subject.request(f"unread-{stage}", stage=stage, reduce_bucket_size=100_000)
        outcome = subject.evaluate(request)
        assert [rank.rank for rank in outcome.measured.ranks] == [played]


@pytest.mark.ray
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_emulated_evaluator_conforms(check: Check, subject: Subject) -> None:
    check(subject)
