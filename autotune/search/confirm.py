"""Confirmation: the winner against the best baseline, interleaved, with whole optimizer steps."""

from datetime import UTC, datetime

from autotune.evaluate import Evaluator, TrialRequest
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.search.progress import Progress
from autotune.study.candidate import TrialRecord
from autotune.study.confirmation import Confirmation
from autotune.study.outcome import Outcome, Status


def confirm(
    evaluator: Evaluator,
    winner: TrialRecord,
    baseline: TrialRecord | None,
    *,
    num_rounds: int,
    progress: Progress,
) -> Confirmation:
    """Run both `num_rounds` times, in turn, each round starting with the other one.

    A winner that fails once is not run again. A model's predictions do not vary: one round is
    enough.

    Raises:
        DispatchError: the pool failed.
    """
    pair = {"winner": winner}
    if baseline is not None and baseline.number != winner.number:
        pair["baseline"] = baseline
    runs: dict[str, list[Outcome]] = {"winner": [], "baseline": []}
    for round_number in range(rounds_of(evaluator, num_rounds)):
        roles = list(pair) if round_number % 2 else list(reversed(pair))
        for role in roles:
            label = run_label(winner.number, role, round_number)
            outcome = _run_once(evaluator, pair[role], label, progress)
            runs[role].append(outcome)
        if runs["winner"][-1].status is not Status.COMPLETE:
            break
    same = baseline is not None and baseline.number == winner.number
    return Confirmation(
        winner=winner.number,
        baseline=baseline.number if baseline else None,
        winner_runs=tuple(runs["winner"]),
        baseline_runs=tuple(runs["winner"] if same else runs["baseline"]),
        ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def rounds_of(evaluator: Evaluator, num_rounds: int) -> int:
    """Return how many of the requested rounds add information."""
    return 1 if evaluator.name == EvaluatorKind.MODELLED else num_rounds


def run_label(winner: int, role: str, round_number: int) -> str:
    """Return the label of a confirmation run, in the logs and in `trials.csv`.

    A baseline runs with every finalist, so its runs have the finalist's number.
    """
    return f"confirm-{winner:04d}-{role}-{round_number}"


def _run_once(evaluator: Evaluator, record: TrialRecord, label: str, progress: Progress) -> Outcome:
    progress.launched(label, record.candidate)
    outcome = evaluator.evaluate(
        TrialRequest(
            number=record.number,
            label=label,
            ds_config=record.candidate.ds_config,
            model_settings=record.candidate.model_settings,
            whole_steps=True,
            same_weights=True,
        ),
        progress.marked,
    )
    progress.finished(label, record.candidate, outcome)
    return outcome
