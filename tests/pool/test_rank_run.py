"""How a slot explains the end of a rank."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.pool import rank_run
from autotune.pool.rank_run import RankRun
from autotune.study.outcome import DeviceClocks, Phase
from autotune.trial.failure_kind import FailureKind
from autotune.trial.spec import TrialSpec

PID = 4_242


@pytest.fixture
def run(make_spec: Callable[..., TrialSpec], tmp_path: Path) -> RankRun:
    spec = make_spec().to_json()
    run = RankRun(spec, 1, tmp_path / "log", "host cuda:0")
    run.take({"kind": "forked", "pid": PID, "at": 1.0})
    run.take({"kind": "mark", "phase": "steady", "where": "step 1"})
    return run


def _ends(run: RankRun, code: int) -> dict[str, Any]:
    run.take({"kind": "exited", "pid": PID, "code": code, "at": 2.0})
    failure: dict[str, Any] = run.report(None)["failure"]
    return failure


def test_sigkill_with_a_kill_by_the_kernel_is_host_memory(
    run: RankRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_run, "num_oom_kills", lambda: 1_000_000)
    failure = _ends(run, -9)
    assert failure["kind"] == FailureKind.HOST_MEMORY
    assert failure["phase"] == Phase.STEADY
    assert "host memory ran out" in failure["message"]


def test_sigkill_without_one_came_from_somebody(run: RankRun) -> None:
    failure = _ends(run, -9)
    assert (failure["kind"], failure["message"]) == (FailureKind.SIGNAL, "killed by SIGKILL")


def test_another_signal_is_not_the_kernels_doing(
    run: RankRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_run, "num_oom_kills", lambda: 1_000_000)
    assert _ends(run, -11)["message"] == "killed by SIGSEGV"


def test_the_reason_of_the_rank_is_kept(run: RankRun) -> None:
    run.take(
        {
            "kind": "failed",
            "failure": "memory",
            "message": "12 bytes short",
            "needed_bytes": 112,
            "short_bytes": 12,
        }
    )
    failure = _ends(run, 1)
    assert failure["kind"] == FailureKind.MEMORY
    assert (failure["needed_bytes"], failure["short_bytes"]) == (112, 12)


def test_clocks_are_taken_in_steady_steps_only_and_go_with_the_measurement(run: RankRun) -> None:
    assert run.is_steady
    run.take({"kind": "measured", "measurement": {"rank": 1, "clocks": None}, "stop": "tight"})
    assert not run.is_steady
    clocks = DeviceClocks(
        num_samples=1, sm_clock_mhz_min=9, sm_clock_mhz_median=9, temperature_c_max=30
    )
    assert run.report(clocks)["measurement"]["clocks"]["sm_clock_mhz_min"] == 9
