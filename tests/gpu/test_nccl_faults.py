"""Faults among real ranks over NCCL: found in time, the right rank named, cards left empty.

Two CUDA devices or more, nobody else on them; about a minute and a half. With AUTOTUNE_TEST_OUTPUT
set to a folder, the seconds that each fault took are kept there as nccl_faults.jsonl.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL, SIGSTOP
from typing import Any

import pytest

from autotune.job.model_shape import PRESETS
from autotune.pool import machine
from autotune.pool.pool import Pool, PoolRequest
from autotune.study.outcome import Phase, Status
from autotune.trial.spec import StepRule, TrialSpec
from tests import rank_processes
from tests.pool_trials import PoolTrials

pytestmark = [pytest.mark.gpu, pytest.mark.ray]

MakeSpec = Callable[..., TrialSpec]
OnMark = Callable[[str, int, Phase, str], None]
MIB, GIB = 2**20, 2**30
STAGE = "zero_optimization.stage"
_ENDLESS = StepRule(min_steps=10_000, max_steps=10_000, max_s=1e6)
_FILL = """
import sys, torch
sys.stdin.readline()
torch.ones(1, device="cuda")
sys.stdin.readline()
kept = torch.empty(torch.cuda.mem_get_info()[0] - (64 << 20), dtype=torch.uint8, device="cuda")
print("taken", flush=True)
sys.stdin.readline()
"""
"""A line in: make a context. Another: take what is free. A third, or the end: leave."""


class Trials(PoolTrials):
    """A pool with a card for each rank, and what its trials came to."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        (group,) = pool.groups
        self.cards = group.visible_devices
        self.used_when_empty = self.used_bytes()

    def used_bytes(self) -> tuple[int, ...]:
        return tuple(machine.cuda_used_bytes(card) for card in self.cards)

    def empty_s(self) -> float:
        """Return how long it takes from now until all cards have their memory back."""
        began = time.monotonic()
        rank_processes.wait_until(
            lambda: all(
                used - empty < 64 * MIB
                for used, empty in zip(self.used_bytes(), self.used_when_empty, strict=True)
            ),
            timeout_s=10,
            what="the cards are empty",
        )
        assert not rank_processes.forks(self.mark)
        return time.monotonic() - began


@pytest.fixture(scope="module")
def trials() -> Iterator[Trials]:
    num_cards = len(machine.cuda_device_names())
    assert num_cards >= 2, f"needs two cards: there are {num_cards}"
    request = PoolRequest(world_size=num_cards, device_kind="cuda", model_type="llama")
    with Pool(request) as pool:
        pool.build_ops(("fused_adam",), on_note=lambda _: None)
        yield Trials(pool)


@pytest.fixture
def spec_on_cards(make_spec: MakeSpec, trials: Trials) -> MakeSpec:
    def make(values: dict[str, Any], **fields: Any) -> TrialSpec:
        gpus = trials.pool.request.world_size
        defaults: dict[str, Any] = {
            "gpus": gpus,
            "global_batch_size": gpus,
            "device_kind": "cuda",
            "ceiling_bytes": 40 * GIB,
        }
        return make_spec(values, **defaults | fields)

    return make


def _tell(**found: Any) -> None:
    """Keep what was found, and write it for whoever asks pytest for it (-rP)."""
    line = json.dumps(found) + "\n"
    sys.stdout.write(line)
    if "AUTOTUNE_TEST_OUTPUT" in os.environ:
        path = Path(os.environ["AUTOTUNE_TEST_OUTPUT"]) / "nccl_faults.jsonl"
        with path.open("a", encoding="utf-8") as file:
            file.write(line)


@pytest.mark.parametrize("stage", [2, 3])
def test_a_killed_rank_ends_the_trial_and_is_named(
    trials: Trials, spec_on_cards: MakeSpec, stage: int
) -> None:
    last = trials.pool.request.world_size - 1
    outcome, noticed_s = trials.run_and_signal(
        spec_on_cards({STAGE: stage}, steps=_ENDLESS), last, SIGKILL
    )
    empty_s = trials.empty_s()
    _tell(fault="killed", stage=stage, noticed_s=noticed_s, empty_s=empty_s)
    assert noticed_s < 5
    assert outcome.status is Status.CRASHED
    assert outcome.failure is not None
    assert (outcome.failure.rank, outcome.failure.phase) == (last, Phase.STEADY)
    assert "SIGKILL" in outcome.failure.reason


def test_a_hung_rank_times_out_and_is_named(trials: Trials, spec_on_cards: MakeSpec) -> None:
    limit_s = 4.0
    hang_timeouts_s = dict.fromkeys(Phase, 60.0) | {Phase.STEADY: limit_s}
    outcome, noticed_s = trials.run_and_signal(
        spec_on_cards({STAGE: 3}, steps=_ENDLESS, hang_timeouts_s=hang_timeouts_s), 1, SIGSTOP
    )
    empty_s = trials.empty_s()
    _tell(fault="hung", limit_s=limit_s, noticed_s=noticed_s, empty_s=empty_s)
    assert noticed_s < limit_s + 5
    assert outcome.status is Status.TIMED_OUT
    assert outcome.failure is not None
    assert (outcome.failure.rank, outcome.failure.phase) == (1, Phase.STEADY)
    assert "SIGSTOP" in outcome.failure.reason


def test_a_rank_that_runs_out_in_the_midst_of_collectives_is_named(
    trials: Trials, spec_on_cards: MakeSpec
) -> None:
    """Rank 1's card is filled from outside at its first step; the others wait for it in NCCL."""
    spec = spec_on_cards(
        {STAGE: 3, "train_micro_batch_size_per_gpu": 8},
        global_batch_size=8 * trials.pool.request.world_size,
        hf_config=PRESETS["1.3b"].hf_config,
        seq_len=2048,
        ceiling_bytes=100 * GIB,
        steps=_ENDLESS,
    )
    filled_at: list[float] = []
    with _filler(trials.cards[1]) as filler:
        assert filler.stdin is not None
        assert filler.stdout is not None
        marks: set[Phase] = set()

        def on_mark(_label: str, of_rank: int, phase: Phase, _where: str) -> None:
            if of_rank != 1 or phase in marks:
                return
            marks.add(phase)
            if phase in (Phase.INIT, Phase.FIRST_STEP):
                filler.stdin.write(b"\n")  # type: ignore[union-attr]
                filler.stdin.flush()  # type: ignore[union-attr]
            if phase is Phase.FIRST_STEP:
                assert filler.stdout.readline() == b"taken\n"  # type: ignore[union-attr]
                filled_at.append(time.monotonic())

        outcome = trials.run(spec, on_mark)
        noticed_s = time.monotonic() - filled_at[0]
    empty_s = trials.empty_s()
    assert outcome.failure is not None
    reason = outcome.failure.reason
    _tell(fault="out of memory", noticed_s=noticed_s, empty_s=empty_s, reason=reason)
    assert outcome.status is Status.OOM_DEVICE, outcome.failure
    assert outcome.failure.rank == 1
    assert noticed_s < 20


def test_the_pool_is_as_good_as_before(trials: Trials, spec_on_cards: MakeSpec) -> None:
    outcome = trials.run(spec_on_cards({STAGE: 3}))
    assert outcome.status is Status.COMPLETE, outcome.failure
    trials.empty_s()


@contextlib.contextmanager
def _filler(card: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A process that fills a card when it is told to."""
    with subprocess.Popen(
        [sys.executable, "-c", _FILL],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": card},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
