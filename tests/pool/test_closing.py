"""Closing a pool takes seconds, also when the kernel needs longer for a killed rank."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from signal import SIGINT, SIGTERM, default_int_handler, getsignal, signal

import pytest
from ray.cluster_utils import Cluster

from autotune.errors import DispatchError
from autotune.pool import local_ray, placement
from autotune.pool.pool import Pool, PoolRequest
from autotune.pool.rank_run import RankRun
from autotune.pool.slot import Slot
from autotune.pool.watcher import MARK_VARIABLE
from autotune.sigterm import interrupted_by_sigterm
from autotune.study.outcome import Phase
from autotune.trial.process_exit import kill_group
from autotune.trial.spec import StepRule, TrialSpec
from tests import rank_processes

pytestmark = pytest.mark.ray

_REQUEST = PoolRequest(world_size=2, device_kind="cpu", model_type="llama")
_ENDLESS = StepRule(min_steps=10_000, max_steps=10_000, max_s=1e6)
_REAPED_AFTER_S = 40.0
_SECONDS = 15.0
"""Far more than closing takes, far less than such a rank."""


class SlowToReap(Slot):
    """As with much pinned memory: a killed rank is there for long, and so its slot has to wait."""

    def _kill(self, run: RankRun) -> None:
        kill_group(run.pid)
        time.sleep(_REAPED_AFTER_S)
        super()._kill(run)


def test_an_interruption_does_not_wait_for_ranks_that_the_kernel_has_not_reaped(
    monkeypatch: pytest.MonkeyPatch, make_spec: Callable[..., TrialSpec]
) -> None:
    monkeypatch.setattr(placement, "Slot", SlowToReap)
    interrupted_at: list[float] = []
    with Pool(_REQUEST) as pool:
        mark = os.environ[MARK_VARIABLE]

        def on_mark(_label: str, _rank: int, phase: Phase, _where: str) -> None:
            if phase is Phase.STEADY and not interrupted_at:
                interrupted_at.append(time.monotonic())
                pool.cancel()

        spec = make_spec({"zero_optimization.stage": 2}, steps=_ENDLESS)
        with pytest.raises(DispatchError, match="interrupted; 2 of 2 slots had not answered"):
            pool.run(spec, number=1, alone=False, on_mark=on_mark)
    assert time.monotonic() - interrupted_at[0] < _SECONDS
    rank_processes.wait_until_none(
        partial(rank_processes.marked_processes, mark), timeout_s=_SECONDS
    )


def test_ray_does_not_take_sigterm_from_a_search() -> None:
    with interrupted_by_sigterm():
        mine = getsignal(SIGTERM)
        with Pool(_REQUEST):
            assert getsignal(SIGTERM) is mine


def test_its_slots_leave_no_files() -> None:
    with Pool(_REQUEST):
        mark = os.environ[MARK_VARIABLE]
        assert len(rank_processes.slot_folders(mark)) == _REQUEST.world_size
    assert rank_processes.slot_folders(mark) == []


def test_its_slots_leave_no_files_on_a_cluster_that_goes_on() -> None:
    def folders() -> set[Path]:
        return set(Path(tempfile.gettempdir()).glob("autotune-slot-*"))

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        before = folders()
        with Pool(replace(_REQUEST, ray_address=cluster.address)):
            assert len(folders() - before) == _REQUEST.world_size
        assert folders() == before
    finally:
        cluster.shutdown()


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Take Ctrl-C as a program in the foreground does; one that a shell put behind ignores it."""
    before = signal(SIGINT, default_int_handler)
    yield
    signal(SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_waits_until_ray_has_started_and_then_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    def init(**_: object) -> None:
        os.kill(os.getpid(), SIGINT)
        # An exception in the midst of it would leave threads that crash the process at its end.
        time.sleep(0.01)
        done.append("started")

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr("ray.shutdown", lambda: done.append("ended"))
    with pytest.raises(KeyboardInterrupt), local_ray.ray_cluster(None, num_cpus=1):
        done.append("used")
    assert done == ["started", "ended"]
    assert getsignal(SIGINT) is default_int_handler
