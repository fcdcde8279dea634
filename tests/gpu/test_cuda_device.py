"""What needs a card: the ceiling, out-of-memory details, an empty card, clocks, compiled ops.

One CUDA device, nobody else on it; about a minute, and one more when FusedAdam is compiled first.
"""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from signal import SIGKILL
from typing import Any

import pytest

from autotune.pool import machine
from autotune.pool.pool import Pool, PoolRequest
from autotune.study.outcome import Phase, Status
from autotune.trial.device.cuda import COMING_BYTES
from autotune.trial.spec import StepRule, TrialSpec
from tests import rank_processes
from tests.gpu.fill_card import BLOCK_BYTES
from tests.pool_trials import PoolTrials

pytestmark = [pytest.mark.gpu, pytest.mark.ray]

MakeSpec = Callable[..., TrialSpec]
OnMark = Callable[[str, int, Phase, str], None]
MIB, GIB = 2**20, 2**30
STAGE = "zero_optimization.stage"
BUCKET = "zero_optimization.reduce_bucket_size"
_ENDLESS = StepRule(min_steps=10_000, max_steps=10_000, max_s=1e6)
_SEGMENT_BYTES = 2 * MIB
"""The allocator asks the driver for multiples of it."""


class Trials(PoolTrials):
    """A pool of one card, and what its trials came to."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.used_when_empty = self.used_bytes()

    def used_bytes(self) -> int:
        return machine.cuda_used_bytes(self.pool.groups[0].visible_devices[0])

    def assert_empty(self) -> None:
        """The card has its memory back within seconds."""
        rank_processes.wait_until(
            lambda: self.used_bytes() - self.used_when_empty < 64 * MIB,
            timeout_s=10,
            what="the card is empty",
        )
        assert not rank_processes.forks(self.mark)


@pytest.fixture(scope="module")
def trials() -> Iterator[Trials]:
    request = PoolRequest(world_size=1, device_kind="cuda", model_type="llama")
    with Pool(request) as pool:
        yield Trials(pool)


@pytest.fixture
def spec_on_cuda(make_spec: MakeSpec) -> MakeSpec:
    def make(values: dict[str, Any], **fields: Any) -> TrialSpec:
        defaults: dict[str, Any] = {"gpus": 1, "device_kind": "cuda", "ceiling_bytes": 4 * GIB}
        return make_spec(values, **defaults | fields)

    return make


def _tell(what: object) -> None:
    """Write a measured number for whoever asks pytest for it (-rP)."""
    sys.stdout.write(f"{what}\n")


def _fill(*arguments: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.fill_card", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_the_ceiling_refuses_and_says_how_many_bytes_are_missing() -> None:
    ceiling_bytes = 8 * GIB
    told = _fill(ceiling_bytes)
    assert told["kind"] == "memory", told
    assert told["used_bytes"] <= ceiling_bytes
    assert told["asked_bytes"] == BLOCK_BYTES
    allowed = ceiling_bytes - told["outside_bytes"] - COMING_BYTES[Phase.BUILD]
    wanted = told["reserved_bytes"] + told["filled_bytes"] + BLOCK_BYTES
    assert told["short_bytes"] == pytest.approx(wanted - allowed, abs=_SEGMENT_BYTES), told
    assert told["needed_bytes"] == ceiling_bytes + told["short_bytes"]


def test_a_card_that_another_process_fills_is_full_below_the_ceiling() -> None:
    total = machine.cuda_device("0")[1]
    told = _fill(total * 9 // 10, total * 7 // 10)
    assert told["kind"] == "device memory", told
    # The driver keeps a few MiB of what it calls free.
    assert told["short_bytes"] <= BLOCK_BYTES
    assert told["free_bytes"] < BLOCK_BYTES + 64 * MIB, told


def test_a_trial_over_the_ceiling_says_so_and_leaves_the_card_empty(
    trials: Trials, spec_on_cuda: MakeSpec
) -> None:
    ceiling_bytes = 2_100 * MIB
    # One bucket of a gigabyte, with a context of half a gigabyte beside it.
    outcome = trials.run(spec_on_cuda({STAGE: 2, BUCKET: 500_000_000}, ceiling_bytes=ceiling_bytes))
    assert outcome.status is Status.OVER_CEILING, outcome.failure
    failure = outcome.failure
    assert failure is not None
    assert (failure.rank, failure.phase) == (0, Phase.FIRST_STEP)
    assert failure.short_bytes is not None
    assert 0 < failure.short_bytes <= 1_000_000_000 + _SEGMENT_BYTES
    assert failure.needed_bytes == ceiling_bytes + failure.short_bytes
    assert failure.reason.startswith(f"{failure.short_bytes:,} bytes short under the ceiling")
    trials.assert_empty()
    again = trials.run(spec_on_cuda({STAGE: 2}, ceiling_bytes=ceiling_bytes))
    assert again.status is Status.COMPLETE, again.failure


def test_a_killed_rank_is_named_and_leaves_the_card_empty(
    trials: Trials, spec_on_cuda: MakeSpec
) -> None:
    killed: list[int] = []

    def on_mark(_label: str, _rank: int, phase: Phase, where: str) -> None:
        if not killed and phase is Phase.STEADY and "step 2" in where:
            killed.append(rank_processes.ranks(trials.mark)[0].pid)
            os.kill(killed[0], SIGKILL)

    outcome = trials.run(spec_on_cuda({STAGE: 1}, steps=_ENDLESS), on_mark)
    assert outcome.status is Status.CRASHED
    assert outcome.failure is not None
    assert "SIGKILL" in outcome.failure.reason
    trials.assert_empty()


def test_memory_stays_under_the_ceiling_and_grows_outside_as_expected(
    trials: Trials, spec_on_cuda: MakeSpec
) -> None:
    spec = spec_on_cuda({STAGE: 3}, steps=StepRule(min_steps=5, max_steps=5))
    outcome = trials.run(spec)
    assert outcome.status is Status.COMPLETE, outcome.failure
    rank = outcome.measured.ranks[0]
    assert [memory.phase for memory in rank.memory] == list(Phase)
    assert rank.peak_bytes <= spec.ceiling_bytes
    outside = []
    for memory in rank.memory:
        assert memory.allocated_bytes is not None
        assert memory.reserved_bytes is not None
        assert 0 < memory.allocated_bytes <= memory.reserved_bytes < memory.used_bytes
        outside.append(memory.used_bytes - memory.reserved_bytes)
    growth = [after - before for before, after in itertools.pairwise(outside)]
    _tell(f"outside the allocator after each phase: {[round(b / MIB) for b in outside]} MiB")
    for phase, grown in zip(list(Phase)[1:], growth, strict=True):
        assert grown <= COMING_BYTES[phase], (phase, outside)
    assert rank.alloc_retries == 0
    assert rank.host_bytes > 100 * MIB


def test_clocks_are_noted(trials: Trials, spec_on_cuda: MakeSpec) -> None:
    outcome = trials.run(spec_on_cuda({STAGE: 1}, steps=StepRule(min_steps=40, max_steps=40)))
    clocks = outcome.measured.ranks[0].clocks
    assert clocks is not None
    _tell(clocks)
    assert clocks.num_samples >= 1
    assert 200 < clocks.sm_clock_mhz_min <= clocks.sm_clock_mhz_median < 4_000
    assert 10 < clocks.temperature_c_max < 110
    assert set(clocks.throttled) == set(outcome.measured.throttled)


def test_ops_are_built_once(trials: Trials) -> None:
    notes: list[str] = []
    trials.pool.build_ops(("fused_adam",), on_note=notes.append)
    assert len(notes) <= 1
    again: list[str] = []
    began = time.monotonic()
    trials.pool.build_ops(("fused_adam",), on_note=again.append)
    assert again == []
    _tell(f"first: {notes}; again: {time.monotonic() - began:.1f} s")
    trials.assert_empty()
