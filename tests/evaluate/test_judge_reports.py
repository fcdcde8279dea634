from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import pytest

from autotune.evaluate.judge_reports import first_failure, outcome_of
from autotune.study.outcome import Outcome, Phase, PhaseMemory, RankMeasurement, Status
from autotune.trial.failure_kind import FailureKind
from autotune.trial.report import RankFailure, RankReport
from autotune.trial.spec import Emulation, TrialSpec

CEILING = 1_000


def _failed(rank: int, kind: FailureKind, at: float, **fields: Any) -> RankReport:
    failure: dict[str, Any] = {
        "kind": kind.value,
        "phase": Phase.STEADY,
        "message": f"rank {rank}: {kind}",
        "at": at,
        "progress": 10,
    }
    return RankReport(rank=rank, device="host cpu", log="", failure=RankFailure(**failure | fields))


def _measured(
    rank: int,
    *,
    used_bytes: int = 900,
    alloc_retries: int = 0,
    stop: str = "tight",
    host_bytes: int = 0,
) -> RankReport:
    memory = tuple(
        PhaseMemory(phase=phase, used_bytes=used_bytes if phase is Phase.FIRST_STEP else 10)
        for phase in Phase
    )
    return RankReport(
        rank=rank,
        device=f"host cuda:{rank}",
        log="",
        stop=stop,
        measurement=RankMeasurement(
            rank=rank,
            inner_s=(0.1,) * 4,
            boundary_s=(0.2 + rank / 10,) * 4,
            memory=memory,
            losses=(7.0,) * 5,
            alloc_retries=alloc_retries,
            host_bytes=host_bytes,
        ),
    )


@pytest.fixture
def judge(make_spec: Callable[..., TrialSpec]) -> Callable[..., Outcome]:
    def judge(reports: Sequence[RankReport], emulation: Emulation | None = None) -> Outcome:
        return outcome_of(
            reports,
            make_spec(ceiling_bytes=CEILING, emulation=emulation),
            evaluator="emulated" if emulation else "measured",
            tokens_per_step=1_000,
            duration_s=1.5,
            neighbours=(4,),
        )

    return judge


Judge = Callable[..., Outcome]


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (FailureKind.MEMORY, Status.OVER_CEILING),
        (FailureKind.HOST_MEMORY, Status.OOM_HOST),
        (FailureKind.INVALID, Status.INVALID),
        (FailureKind.ERROR, Status.CRASHED),
        (FailureKind.SIGNAL, Status.CRASHED),
        (FailureKind.HUNG, Status.TIMED_OUT),
    ],
)
@pytest.mark.parametrize("peer_is_first", [True, False])
def test_a_peers_error_is_never_the_reason_whichever_came_first(
    judge: Judge, kind: FailureKind, status: Status, peer_is_first: bool
) -> None:
    peers_at = 0.96 if peer_is_first else 1.04
    reports = [
        _failed(0, FailureKind.PEER, peers_at, progress=9),
        _failed(1, kind, 1.0),
        _failed(2, FailureKind.STOPPED, 2.0),
    ]
    outcome = judge(reports)
    assert outcome.status is status
    assert outcome.failure is not None
    assert (outcome.failure.rank, outcome.failure.phase) == (1, Phase.STEADY)
    assert outcome.failure.log == "logs/trial/rank-1.log"


def test_of_several_causes_the_first_counts() -> None:
    reports = [
        _failed(0, FailureKind.PEER, 0.5),
        _failed(1, FailureKind.ERROR, 1.1),
        _failed(2, FailureKind.MEMORY, 1.0),
        _failed(3, FailureKind.HUNG, 1.2),
    ]
    for order in permutations(reports):
        found = first_failure(order)
        assert found is not None
        assert found.rank == 2


def test_with_consequences_only_the_first_of_them_has_to_do(judge: Judge) -> None:
    outcome = judge([_failed(0, FailureKind.STOPPED, 2.0), _failed(1, FailureKind.PEER, 1.0)])
    assert outcome.status is Status.CRASHED
    assert outcome.failure is not None
    assert outcome.failure.rank == 1


def test_in_a_hang_the_rank_with_the_least_progress_is_the_culprit(judge: Judge) -> None:
    outcome = judge(
        [
            _failed(0, FailureKind.HUNG, 1.0, progress=12),
            _failed(1, FailureKind.STOPPED, 2.0, progress=11),
            _failed(2, FailureKind.HUNG, 1.1, progress=12),
        ]
    )
    assert outcome.status is Status.TIMED_OUT
    assert outcome.failure is not None
    assert outcome.failure.rank == 1
    assert "least progress" in outcome.failure.reason


def test_in_a_hang_a_suspended_rank_is_the_culprit_however_far_it_got(judge: Judge) -> None:
    outcome = judge(
        [
            _failed(0, FailureKind.HUNG, 1.0, progress=11),
            _failed(1, FailureKind.STOPPED, 2.0, progress=12, suspended=True),
        ]
    )
    assert outcome.status is Status.TIMED_OUT
    assert outcome.failure is not None
    assert outcome.failure.rank == 1
    assert "SIGSTOP" in outcome.failure.reason


def test_in_a_hang_with_equal_progress_the_first_to_go_silent_counts() -> None:
    found = first_failure([_failed(0, FailureKind.HUNG, 1.2), _failed(1, FailureKind.HUNG, 1.0)])
    assert found is not None
    assert found.rank == 1


def test_ranks_that_all_measured_are_a_complete_trial(judge: Judge) -> None:
    reports = [_measured(0), _measured(1)]
    assert first_failure(reports) is None
    outcome = judge(reports)
    assert outcome.status is Status.COMPLETE
    assert outcome.failure is None
    assert outcome.devices == ("host cuda:0", "host cuda:1")
    assert outcome.neighbours == (4,)
    # Three inner micro steps and the slower rank's boundary.
    assert outcome.measured.tokens_per_s.mean == pytest.approx(1_000 / (3 * 0.1 + 0.3))


def test_one_failed_rank_fails_a_trial_that_the_others_measured(judge: Judge) -> None:
    outcome = judge([_measured(0), _failed(1, FailureKind.ERROR, 1.0)])
    assert outcome.status is Status.CRASHED
    assert outcome.measurement is None


def test_memory_that_ran_out_carries_what_was_needed(judge: Judge) -> None:
    outcome = judge(
        [_measured(0), _failed(1, FailureKind.MEMORY, 1.0, needed_bytes=1_300, phase=Phase.INIT)]
    )
    assert outcome.failure is not None
    assert (outcome.failure.needed_bytes, outcome.failure.phase) == (1_300, Phase.INIT)


def test_a_trial_that_ran_but_used_more_than_the_ceiling_does_not_fit(judge: Judge) -> None:
    outcome = judge([_measured(0), _measured(1, used_bytes=CEILING + 1)])
    assert outcome.status is Status.OVER_CEILING
    assert outcome.measurement is not None
    assert outcome.failure is not None
    assert (outcome.failure.rank, outcome.failure.needed_bytes) == (1, CEILING + 1)
    assert outcome.failure.phase is Phase.FIRST_STEP


def test_a_trial_that_uses_the_ceiling_to_the_byte_fits(judge: Judge) -> None:
    assert judge([_measured(0, used_bytes=CEILING)]).status is Status.COMPLETE


def test_a_trial_that_fits_only_by_giving_back_its_cache_does_not_fit(judge: Judge) -> None:
    outcome = judge([_measured(0), _measured(1, alloc_retries=2)])
    assert outcome.status is Status.OVER_CEILING
    assert outcome.failure is not None
    assert outcome.failure.rank == 1
    assert outcome.failure.needed_bytes is not None
    assert outcome.failure.needed_bytes > CEILING


def test_a_slow_trial_keeps_its_measurement(judge: Judge) -> None:
    outcome = judge([_measured(0, stop="slow"), _measured(1, stop="slow")])
    assert outcome.status is Status.SLOW
    assert outcome.measurement is not None
    assert outcome.failure is not None
    assert "stopped early" in outcome.failure.reason


def test_a_trial_that_is_slow_and_does_not_fit_does_not_fit(judge: Judge) -> None:
    outcome = judge([_measured(0, stop="slow", used_bytes=CEILING + 1)])
    assert outcome.status is Status.OVER_CEILING


def test_a_report_survives_json() -> None:
    failure = {
        "kind": "hung",
        "phase": "first step",
        "message": "silent",
        "at": 2.5,
        "progress": 4,
        "needed_bytes": None,
        "suspended": True,
    }
    report = RankReport.from_json(
        {
            "rank": 1,
            "device": "host cpu",
            "log": "text",
            "measurement": None,
            "stop": None,
            "failure": failure,
        }
    )
    assert report.failure is not None
    assert report.failure.phase is Phase.FIRST_STEP
    assert report.failure.suspended


def _emulation(*, charged_bytes: int = 0, host_bytes: int = 500) -> Emulation:
    return Emulation(
        world_size=16, local_world_size=8, host_bytes=host_bytes, charged_bytes=charged_bytes
    )


@pytest.mark.parametrize(
    ("charged_bytes", "status"), [(100, Status.COMPLETE), (101, Status.OVER_CEILING)]
)
def test_what_real_ranks_hold_beside_is_charged_against_the_ceiling_and_in_no_peak(
    judge: Judge, charged_bytes: int, status: Status
) -> None:
    outcome = judge([_measured(0, used_bytes=900)], _emulation(charged_bytes=charged_bytes))
    assert outcome.status is status
    assert outcome.charged_bytes == charged_bytes
    assert outcome.measured.peak_bytes == 900
    if outcome.failure is not None:
        assert outcome.failure.needed_bytes == 900
        assert "of which 101 are kept for communication" in outcome.failure.reason


def test_needing_retries_under_what_is_left_of_the_ceiling_is_over_the_ceiling(
    judge: Judge,
) -> None:
    outcome = judge([_measured(0, alloc_retries=1)], _emulation(charged_bytes=50))
    assert outcome.failure is not None
    assert outcome.failure.needed_bytes is not None
    assert outcome.failure.needed_bytes + outcome.charged_bytes == CEILING + 1


@pytest.mark.parametrize(("host_bytes", "status"), [(500, Status.COMPLETE), (501, Status.OOM_HOST)])
def test_an_emulated_rank_has_its_share_of_the_host_only(
    judge: Judge, host_bytes: int, status: Status
) -> None:
    outcome = judge([_measured(0, host_bytes=host_bytes)], _emulation(host_bytes=500))
    assert outcome.status is status
    if outcome.failure is not None:
        assert "with 8 ranks on a node like this one" in outcome.failure.reason
        assert outcome.failure.rank == 0


def test_a_real_rank_may_use_whatever_host_memory_there_is(judge: Judge) -> None:
    assert judge([_measured(0, host_bytes=1 << 50)]).status is Status.COMPLETE
