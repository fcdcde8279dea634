"""Search, confirm and export, with any evaluator."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.errors import StoreError
from autotune.evaluate import Evaluator
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.export import write_study_files
from autotune.search.budget import Budget
from autotune.search.confirm import confirm, rounds_of
from autotune.search.loop import Search
from autotune.search.memory_screen import Screen
from autotune.search.progress import Progress
from autotune.search.speed_model import SpeedModel
from autotune.study.candidate import TrialRecord
from autotune.study.confirmation import Confirmation, best_of, is_complete, tokens_per_s
from autotune.study.folder import OpenedStudy
from autotune.study.rejection import read_rejections
from autotune.study.store import StoredStudy
from autotune.study.view import StudyView
from autotune.tuning.request import TuneRequest, TuneResult
from autotune.tuning.scale_up import Target, predict_target

_MAX_FINALISTS = 3
"""Trials to confirm, one after the other, until one passes."""


def run_study(  # noqa: PLR0913  each is a different thing
    opened: OpenedStudy,
    evaluator: Evaluator,
    folder: Path,
    *,
    request: TuneRequest,
    progress: Progress,
    screen: Screen | None = None,
    speed: SpeedModel | None = None,
    target: Target | None = None,
) -> TuneResult:
    """Search, confirm and export with any evaluator.

    Args:
        opened: the study.
        evaluator: evaluates its trials.
        folder: the study's.
        request: budget and rounds.
        progress: notified of every step.
        screen: rejects before launch what does not fit; None launches everything.
        speed: proposes first trials and learns from all; None where it lacks the device, or is the
            evaluator.
        target: where the exported config will run; None for no prediction.

    Raises:
        DispatchError: the pool failed; finished trials are stored and the files written.
        KeyboardInterrupt: likewise.
    """
    try:
        _search(opened, evaluator, request=request, progress=progress, screen=screen, speed=speed)
        _confirm(opened.stored, evaluator, num_rounds=request.confirm_rounds, progress=progress)
        if target is not None:
            _predict_target(opened, target, screen=screen, speed=speed)
    except BaseException:
        # The files are written even if the search fails; the reason of the search has priority
        # over a failure to write.
        with suppress(StoreError):
            _write(opened, folder, speed)
        raise
    record = _write(opened, folder, speed)
    return TuneResult(study=StudyView.of(opened.stored), folder=folder, record=record)


def _write(opened: OpenedStudy, folder: Path, speed: SpeedModel | None) -> Mapping[str, Any] | None:
    """Write the files of a study; return its record, or None."""
    if speed is not None:
        report = speed.report(opened.stored.records())
        opened.stored.set_attribute("speed", report.to_json())
    return write_study_files(StudyView.of(opened.stored), folder)


def _search(
    opened: OpenedStudy,
    evaluator: Evaluator,
    *,
    request: TuneRequest,
    progress: Progress,
    screen: Screen | None,
    speed: SpeedModel | None,
) -> None:
    setup = opened.setup
    if screen is not None:
        screen.rejections += read_rejections(opened.stored.attributes)
    search = Search(
        study=opened.stored,
        evaluator=evaluator,
        space=setup.space,
        workload=setup.workload,
        base=setup.base,
        ceiling_bytes=setup.ceiling_bytes,
        seed=setup.seed,
        budget=Budget(max_trials=request.trials, max_s=request.time_budget_s),
        progress=progress,
        screen=screen,
        speed=speed,
        sampler=request.sampler,
    )
    try:
        search.run()
    finally:
        if screen is not None:
            opened.stored.set_attribute("screen", screen.report().to_json())


def _predict_target(
    opened: OpenedStudy, target: Target, *, screen: Screen | None, speed: SpeedModel | None
) -> None:
    """Store the prediction for the exported config on `--target-gpus`, if there is one."""
    exported = StudyView.of(opened.stored).exported
    if exported is None:
        return
    learned = replace(
        target,
        memory_calibration=screen.calibration if screen else target.memory_calibration,
        speed_calibration=speed.calibration if speed else target.speed_calibration,
    )
    predicted = predict_target(learned, exported.candidate, seed=opened.setup.seed)
    opened.stored.set_attribute("target", {"trial": exported.number, **predicted})


def _confirm(
    stored: StoredStudy, evaluator: Evaluator, *, num_rounds: int, progress: Progress
) -> None:
    """Confirm the fastest proposal against the fastest baseline; the next one if it fails.

    If all of them fail, or there is none, the baseline runs alone. An earlier confirmation is valid
    until a new one succeeds, and is not repeated while its inputs are the same.
    """
    known = [Confirmation.from_json(one) for one in stored.attributes.get("confirmations", [])]
    stands = any(one.exported is not None for one in known)
    records = stored.records()
    baseline = best_of([r for r in records if r.candidate.is_baseline])
    finalists = sorted(
        (r for r in records if not r.candidate.is_baseline and is_complete(r)),
        key=tokens_per_s,
        reverse=True,
    )[:_MAX_FINALISTS]
    winners = [*finalists, baseline] if baseline else finalists
    if _is_up_to_date(known, winners, baseline, num_rounds=rounds_of(evaluator, num_rounds)):
        when = f" on {known[-1].ended_at}" if known[-1].ended_at else ""
        more = (
            "" if evaluator.name == EvaluatorKind.MODELLED else "; more --confirm-rounds repeat it"
        )
        progress.noted(f"confirmed{when}; nothing new to confirm{more}")
        return
    confirmations = []
    for winner in winners:
        confirmation = confirm(
            evaluator, winner, baseline, num_rounds=num_rounds, progress=progress
        )
        confirmations.append(confirmation.to_json())
        if not stands or confirmation.exported is not None:
            stored.set_attribute("confirmations", confirmations)
            stands = False
        if confirmation.failure is None:
            return
        if stands:
            progress.noted(
                f"trial {winner.number} failed when it was confirmed again; the earlier "
                f"confirmation stays valid: {confirmation.failure}"
            )


def _is_up_to_date(
    known: Sequence[Confirmation],
    winners: Sequence[TrialRecord],
    baseline: TrialRecord | None,
    *,
    num_rounds: int,
) -> bool:
    """Whether an earlier confirmation has the same trials, in at least as many rounds.

    A failed one is repeated: the machine may be the cause.
    """
    if len(known) != 1 or not winners or known[0].failure is not None:
        return False
    (one,) = known
    if baseline is not None and one.baseline_failure is not None:
        return False
    same = one.winner == winners[0].number
    against = one.baseline == (baseline.number if baseline else None)
    return same and against and len(one.winner_runs) >= num_rounds
