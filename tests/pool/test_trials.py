"""Trials on real DeepSpeed ranks that Ray placed: two CPU slots, one pool for all tests."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL, SIGSTOP
from typing import Any

import pytest

from autotune.errors import DispatchError, HardwareError
from autotune.job.model_shape import PRESETS
from autotune.pool.build import build_on_every_node
from autotune.pool.pool import Pool, PoolRequest
from autotune.study.confirmation import LOSS_TOLERANCE, global_losses
from autotune.study.outcome import Outcome, Phase, Status
from autotune.trial.spec import StepRule, TrialSpec
from tests import rank_processes
from tests.pool_trials import PoolTrials

pytestmark = pytest.mark.ray

MakeSpec = Callable[..., TrialSpec]
STAGE = "zero_optimization.stage"
OFFLOAD_OPTIMIZER = "zero_optimization.offload_optimizer.device"
OFFLOAD_PARAM = "zero_optimization.offload_param.device"
_ENDLESS = StepRule(min_steps=10_000, max_steps=10_000, max_s=1e6)


@pytest.fixture(scope="module")
def trials() -> Iterator[PoolTrials]:
    request = PoolRequest(world_size=2, device_kind="cpu", model_type="llama")
    with Pool(request) as pool:
        yield PoolTrials(pool)


@pytest.fixture(scope="module")
def reference(trials: PoolTrials, make_spec: MakeSpec) -> Outcome:
    """Plain data parallelism."""
    return trials.run(make_spec({STAGE: 0}, same_weights=True))


def _assert_sane(outcome: Outcome, spec: TrialSpec) -> None:
    assert outcome.status is Status.COMPLETE, outcome.failure
    ranks = outcome.measured.ranks
    assert [rank.rank for rank in ranks] == [0, 1]
    for rank in ranks:
        assert len(rank.boundary_s) == len(rank.inner_s) == spec.steps.max_steps
        assert len(rank.losses) == spec.steps.max_steps + 1
        assert all(0.001 < s < 20 for s in rank.boundary_s)
        if spec.timed_accumulation > 1:
            assert all(0.001 < s < 20 for s in rank.inner_s)
        assert [memory.phase for memory in rank.memory] == list(Phase)
        assert 1 << 20 < rank.peak_bytes < 500 << 20
        assert rank.peak_bytes < rank.host_bytes
    # Random tokens: about the logarithm of the vocabulary.
    assert all(6 < loss < 8 for loss in ranks[0].losses)
    # Each rank has data of its own.
    assert ranks[0].losses != ranks[1].losses


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({STAGE: 0}, id="stage 0"),
        pytest.param({STAGE: 1}, id="stage 1"),
        pytest.param({STAGE: 2}, id="stage 2"),
        pytest.param({STAGE: 3}, id="stage 3"),
        pytest.param({STAGE: 1, OFFLOAD_OPTIMIZER: "cpu"}, id="stage 1, optimizer offloaded"),
        pytest.param({STAGE: 2, OFFLOAD_OPTIMIZER: "cpu"}, id="stage 2, optimizer offloaded"),
        pytest.param({STAGE: 3, OFFLOAD_OPTIMIZER: "cpu"}, id="stage 3, optimizer offloaded"),
        pytest.param({STAGE: 3, OFFLOAD_PARAM: "cpu"}, id="stage 3, parameters offloaded"),
        pytest.param(
            {STAGE: 3, OFFLOAD_PARAM: "cpu", OFFLOAD_OPTIMIZER: "cpu"}, id="stage 3, all offloaded"
        ),
        pytest.param({STAGE: 2, "train_micro_batch_size_per_gpu": 2}, id="no accumulation"),
    ],
)
def test_every_config_trains_alike_from_the_same_weights(
    trials: PoolTrials, make_spec: MakeSpec, reference: Outcome, values: dict[str, Any]
) -> None:
    spec = make_spec(values, global_batch_size=4, same_weights=True)
    outcome = trials.run(spec)
    _assert_sane(outcome, spec)
    assert global_losses(outcome) == pytest.approx(global_losses(reference), rel=LOSS_TOLERANCE)


def test_a_trial_over_the_ceiling_ends_at_once_and_leaves_the_device_clean(
    trials: PoolTrials, make_spec: MakeSpec
) -> None:
    ceiling_bytes = 300 << 20
    began = time.monotonic()
    outcome = trials.run(
        make_spec(
            {STAGE: 2, "zero_optimization.reduce_bucket_size": 500_000_000},
            ceiling_bytes=ceiling_bytes,
        )
    )
    assert time.monotonic() - began < 4
    assert outcome.status is Status.OVER_CEILING
    assert outcome.failure is not None
    assert outcome.failure.needed_bytes is not None
    assert outcome.failure.needed_bytes > ceiling_bytes
    assert outcome.failure.short_bytes == outcome.failure.needed_bytes - ceiling_bytes
    assert outcome.failure.reason.startswith(f"{outcome.failure.short_bytes:,} bytes short")
    fits = make_spec({STAGE: 2}, ceiling_bytes=ceiling_bytes)
    _assert_sane(trials.run(fits), fits)


def test_a_config_that_deepspeed_refuses_is_invalid_with_its_text(
    trials: PoolTrials, make_spec: MakeSpec
) -> None:
    # Only `initialize` knows: the parser takes it.
    outcome = trials.run(make_spec({STAGE: 1, "zero_optimization.allgather_bucket_size": 100_001}))
    assert outcome.status is Status.INVALID
    assert outcome.failure is not None
    assert outcome.failure.phase is Phase.INIT
    assert "allgather_bucket_size must be a multiple" in outcome.failure.reason


def test_fp32_trains(trials: PoolTrials, make_spec: MakeSpec) -> None:
    spec = make_spec({STAGE: 1}, precision="fp32")
    _assert_sane(trials.run(spec), spec)


def test_gpt2_trains_alike_whole_and_sharded(trials: PoolTrials, make_spec: MakeSpec) -> None:
    small = {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 1_024, "n_positions": 64}
    losses = []
    for stage in (1, 3):
        spec = make_spec(
            {STAGE: stage}, hf_config={**PRESETS["gpt2"].hf_config, **small}, same_weights=True
        )
        outcome = trials.run(spec)
        _assert_sane(outcome, spec)
        losses.append(global_losses(outcome))
    assert losses[0] == pytest.approx(losses[1], rel=LOSS_TOLERANCE)


def test_activation_checkpointing_lowers_the_peak_of_long_sequences(
    trials: PoolTrials, make_spec: MakeSpec
) -> None:
    peaks = []
    for checkpointing in (True, False):
        spec = make_spec(
            {STAGE: 1},
            hf_config={**PRESETS["tiny"].hf_config, "num_hidden_layers": 8},
            seq_len=512,
            activation_checkpointing=checkpointing,
            steps=StepRule(min_steps=1, max_steps=1),
        )
        outcome = trials.run(spec)
        _assert_sane(outcome, spec)
        peaks.append(outcome.measured.peak_bytes)
    assert peaks[0] < 0.85 * peaks[1]


def test_an_op_that_cannot_be_built_ends_the_study_with_its_reason(trials: PoolTrials) -> None:
    notes: list[str] = []
    with pytest.raises(HardwareError, match=r"DeepSpeed's op no_such_op: .*no_such_op"):
        build_on_every_node(trials.pool.groups, ["no_such_op"], on_note=notes.append)
    assert notes == []
    # Ranks of this pool need none: torch's own optimizer runs there.
    trials.pool.build_ops(["no_such_op"], on_note=notes.append)


def test_a_killed_rank_ends_the_trial_within_seconds_and_is_named(
    trials: PoolTrials, make_spec: MakeSpec
) -> None:
    outcome, seconds = trials.run_and_signal(make_spec({STAGE: 2}, steps=_ENDLESS), 1, SIGKILL)
    assert seconds < 3
    assert outcome.status is Status.CRASHED
    assert outcome.failure is not None
    assert (outcome.failure.rank, outcome.failure.phase) == (1, Phase.STEADY)
    assert "SIGKILL" in outcome.failure.reason
    assert not rank_processes.forks(trials.mark)


def test_a_stopped_rank_times_out_and_is_named(trials: PoolTrials, make_spec: MakeSpec) -> None:
    hang_timeouts_s = dict.fromkeys(Phase, 60.0) | {Phase.STEADY: 1.5}
    spec = make_spec({STAGE: 2}, steps=_ENDLESS, hang_timeouts_s=hang_timeouts_s)
    outcome, seconds = trials.run_and_signal(spec, 0, SIGSTOP)
    assert seconds < 6
    assert outcome.status is Status.TIMED_OUT
    assert outcome.failure is not None
    assert (outcome.failure.rank, outcome.failure.phase) == (0, Phase.STEADY)
    assert "SIGSTOP" in outcome.failure.reason
    assert not rank_processes.forks(trials.mark)


def test_trials_leave_nothing_in_shared_memory(trials: PoolTrials, make_spec: MakeSpec) -> None:
    shared_memory = Path("/dev/shm")
    trials.run(make_spec({STAGE: 1}))
    before = sorted(shared_memory.iterdir())
    for stage in (1, 2, 3):
        trials.run(make_spec({STAGE: stage}))
    trials.run(make_spec({STAGE: 2}, ceiling_bytes=20 << 20))
    assert sorted(shared_memory.iterdir()) == before


def test_an_interrupted_pool_launches_nothing_more(trials: PoolTrials, make_spec: MakeSpec) -> None:
    # The last test of this pool.
    interrupted_at: list[float] = []

    def on_mark(_label: str, _rank: int, phase: Phase, _where: str) -> None:
        if phase is Phase.STEADY and not interrupted_at:
            interrupted_at.append(time.monotonic())
            trials.pool.cancel()

    outcome = trials.run(make_spec({STAGE: 2}, steps=_ENDLESS), on_mark)
    assert time.monotonic() - interrupted_at[0] < 2
    assert outcome.failure is not None
    assert "interrupted" in outcome.failure.reason
    assert not rank_processes.forks(trials.mark)
    with pytest.raises(DispatchError, match="trial: the run was interrupted"):
        trials.run(make_spec({STAGE: 2}))
