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
"""Trials that are confirmed, one after the other, as long as each fails its confirmation."""


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
        progress: told of what happens.
        screen: rejects before launch what does not fit; None launches everything.
        speed: proposes first trials and is told of all; None where it knows nothing, or where it
            is the evaluator.
        target: where the exported config is to run; None asks for no prediction.

    Raises:
        DispatchError: the pool failed; what had finished is stored and its files are written.
        KeyboardInterrupt: likewise.
    """
    try:
        _search(opened, evaluator, request=request, progress=progress, screen=screen, speed=speed)
        _confirm(opened.stored, evaluator, num_rounds=request.confirm_rounds, progress=progress)
        if target is not None:
            _predict_target(opened, target, screen=screen, speed=speed)
    except BaseException:
        # Whatever ended the search, its files tell what there is; if they cannot, the search's
        # own reason comes first.
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
    """Store what the exported config should do on `--target-gpus`; nothing if there is none."""
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

    If all of them fail, or there is none, the baseline is run by itself. A confirmation of before
    stands until there is a new one that decides, and is not repeated while it would be the same.
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
    if _says_all(known, winners, baseline, num_rounds=rounds_of(evaluator, num_rounds)):
        when = f" on {known[-1].ended_at}" if known[-1].ended_at else ""
        more = (
            ""
            if evaluator.name == EvaluatorKind.MODELLED
            else "; more --confirm-rounds do it again"
        )
        progress.noted(f"confirmed{when}, and nothing new to confirm{more}")
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
                f"trial {winner.number} failed when it was confirmed again, and what was "
                f"confirmed before stands: {confirmation.failure}"
            )


def _says_all(
    known: Sequence[Confirmation],
    winners: Sequence[TrialRecord],
    baseline: TrialRecord | None,
    *,
    num_rounds: int,
) -> bool:
    """Whether what was confirmed before is what would be confirmed now, in as many rounds.

    Not if anything failed: it may have been the machine.
    """
    if len(known) != 1 or not winners or known[0].failure is not None:
        return False
    (one,) = known
    if baseline is not None and one.baseline_failure is not None:
        return False
    same = one.winner == winners[0].number
    against = one.baseline == (baseline.number if baseline else None)
    return same and against and len(one.winner_runs) >= num_rounds
