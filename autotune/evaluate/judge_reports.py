"""Makes one outcome of the ranks' reports. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from autotune.job.ceiling import format_gib
from autotune.study.outcome import Failure, Measurement, Outcome, Phase, Status
from autotune.trial.failure_kind import FailureKind
from autotune.trial.report import RankFailure, RankReport
from autotune.trial.spec import TrialSpec

_STATUS = {
    FailureKind.MEMORY: Status.OVER_CEILING,
    FailureKind.DEVICE_MEMORY: Status.OOM_DEVICE,
    FailureKind.HOST_MEMORY: Status.OOM_HOST,
    FailureKind.INVALID: Status.INVALID,
    FailureKind.PEER: Status.CRASHED,
    FailureKind.DEVICE: Status.CRASHED,
    FailureKind.ERROR: Status.CRASHED,
    FailureKind.SIGNAL: Status.CRASHED,
    FailureKind.HUNG: Status.TIMED_OUT,
    FailureKind.STOPPED: Status.CRASHED,
}
_CONSEQUENCES = (FailureKind.PEER, FailureKind.STOPPED)


def outcome_of(
    reports: Sequence[RankReport],
    spec: TrialSpec,
    *,
    evaluator: str,
    tokens_per_step: int,
    duration_s: float,
    neighbours: tuple[int, ...] = (),
) -> Outcome:
    """Judge a trial by its ranks' reports.

    Args:
        reports: one per rank that was launched, in rank order.
        spec: the trial.
        evaluator: the kind of evaluator.
        tokens_per_step: of the user's global batch.
        duration_s: from launch to outcome.
        neighbours: trials on the same nodes at the same time.
    """
    culprit = first_failure(reports)
    devices = tuple(report.device for report in reports)
    charged_bytes = spec.emulation.charged_bytes if spec.emulation else 0
    ranks_s = max(max(r.exited_at for r in reports) - min(r.forked_at for r in reports), 0.0)
    if culprit is not None:
        failed = culprit.failure
        assert failed is not None
        return Outcome(
            status=_STATUS[FailureKind(failed.kind)],
            evaluator=evaluator,
            failure=Failure(
                reason=failed.message,
                rank=culprit.rank,
                phase=failed.phase,
                needed_bytes=failed.needed_bytes,
                short_bytes=failed.short_bytes,
                log=log_name(spec.label, culprit.rank),
            ),
            duration_s=duration_s,
            ranks_s=ranks_s,
            neighbours=neighbours,
            devices=devices,
            charged_bytes=charged_bytes,
        )
    measurement = Measurement(
        tokens_per_step=tokens_per_step,
        accumulation=spec.accumulation,
        timed_accumulation=spec.timed_accumulation,
        ranks=tuple(report.measurement for report in reports if report.measurement),
    )
    status, failure = _judge(measurement, reports, spec)
    return Outcome(
        status=status,
        evaluator=evaluator,
        measurement=measurement,
        failure=failure,
        duration_s=duration_s,
        ranks_s=ranks_s,
        neighbours=neighbours,
        devices=devices,
        charged_bytes=charged_bytes,
    )


def first_failure(reports: Sequence[RankReport]) -> RankReport | None:
    """Return the report of the rank that failed first, or None if all ranks measured.

    A lost connection to a peer is a consequence and never the reason, whenever it arrives. If
    several ranks hang, the one that is suspended, or has the least progress, blocks the others.
    """
    failed = [(report, report.failure) for report in reports if report.failure]
    if not failed:
        return None
    causes = [(r, f) for r, f in failed if FailureKind(f.kind) not in _CONSEQUENCES]
    if causes and all(FailureKind(f.kind) is FailureKind.HUNG for _, f in causes):
        # A rank that lost its peer was waiting for it, so it did not hang.
        silent = [(r, f) for r, f in failed if FailureKind(f.kind) is not FailureKind.PEER]
        culprit, how = min(silent, key=lambda pair: _hold_up(pair[1]))
        if FailureKind(how.kind) is FailureKind.HUNG:
            return culprit
        return _as_hung(culprit, how)
    return min(causes or failed, key=lambda pair: pair[1].at)[0]


def log_name(label: str, rank: int) -> str:
    """Return a rank's log, relative to the study folder."""
    return f"logs/{label}/rank-{rank}.log"


def _hold_up(failure: RankFailure) -> tuple[bool, int, float]:
    return (not failure.suspended, failure.progress, failure.at)


def _as_hung(report: RankReport, failure: RankFailure) -> RankReport:
    """Return the report of the rank that hung, although it ended before its time-out."""
    why = "was stopped (SIGSTOP)" if failure.suspended else "made the least progress"
    message = f"{why} in {failure.phase}, and the others waited for it"
    return replace(report, failure=replace(failure, kind=FailureKind.HUNG.value, message=message))


def _judge(
    measurement: Measurement, reports: Sequence[RankReport], spec: TrialSpec
) -> tuple[Status, Failure | None]:
    """Return the status of a trial that ran to its end, and the failure if it is not complete."""
    if failure := _over_ceiling(measurement, spec):
        return Status.OVER_CEILING, failure
    if failure := _over_host_share(measurement, spec):
        return Status.OOM_HOST, failure
    if any(report.stop == "slow" for report in reports):
        first = reports[0].rank
        return Status.SLOW, Failure(
            reason="stopped early: even its fastest step was clearly slower than the best trial's",
            rank=first,
            phase=Phase.STEADY,
            log=log_name(spec.label, first),
        )
    return Status.COMPLETE, None


def _over_ceiling(measurement: Measurement, spec: TrialSpec) -> Failure | None:
    largest = max(measurement.ranks, key=lambda rank: rank.peak_bytes)
    retried = max(measurement.ranks, key=lambda rank: rank.alloc_retries)
    if largest.peak_bytes > spec.enforced_bytes:
        charged = spec.ceiling_bytes - spec.enforced_bytes
        kept = f", of which {charged} are kept for communication" if charged else ""
        return Failure(
            reason=f"used {largest.peak_bytes} bytes of a ceiling of {spec.ceiling_bytes}{kept}",
            rank=largest.rank,
            phase=max(largest.memory, key=lambda memory: memory.used_bytes).phase,
            needed_bytes=largest.peak_bytes,
            log=log_name(spec.label, largest.rank),
        )
    if retried.alloc_retries:
        return Failure(
            reason=f"its steady steps needed {retried.alloc_retries} allocator retries: it fits "
            "only by giving back its cache in every step",
            rank=retried.rank,
            phase=Phase.STEADY,
            needed_bytes=spec.enforced_bytes + 1,
            log=log_name(spec.label, retried.rank),
        )
    return None


def _over_host_share(measurement: Measurement, spec: TrialSpec) -> Failure | None:
    """Return why an emulated rank does not fit on a host that its peers share."""
    if spec.emulation is None:
        return None
    largest = max(measurement.ranks, key=lambda rank: rank.host_bytes)
    share_bytes = spec.emulation.host_bytes
    if largest.host_bytes <= share_bytes:
        return None
    return Failure(
        reason=f"used {format_gib(largest.host_bytes)} of host memory; with "
        f"{spec.emulation.local_world_size} ranks on a node like this one each has "
        f"{format_gib(share_bytes)}",
        rank=largest.rank,
        log=log_name(spec.label, largest.rank),
    )
