"""What the numbers of a study leave out because no real ranks made them."""

from statistics import fmean

from rich.console import Console

from autotune.evaluate.evaluator_kind import EvaluatorKind, not_shown
from autotune.job.ceiling import format_gib
from autotune.study.confirmation import Compared, Confirmation
from autotune.study.step_times import slowest_of_s
from autotune.study.view import StudyView

_UNEVEN = 0.01
"""Below it the waits for the slowest rank are not worth a line."""


def print_not_shown(console: Console, study: StudyView, confirmation: Confirmation) -> None:
    """Say what numbers of this kind leave out."""
    evaluator = study.setup.evaluator
    if clauses := not_shown(evaluator, study.setup.communication):
        console.print(f"{evaluator}, so not in these numbers: {'; '.join(clauses)}")
    charged_bytes = max(run.charged_bytes for run in confirmation.exported_runs)
    if charged_bytes:
        console.print(
            f"{format_gib(charged_bytes)} of the ceiling were kept free for what real ranks hold "
            "to communicate (NCCL); the peaks above are without it"
        )
    if evaluator == EvaluatorKind.EMULATED:
        _print_waits(console, confirmation, ranks=study.setup.workload.world_size)


def _print_waits(console: Console, confirmation: Confirmation, *, ranks: int) -> None:
    """Say how much longer real ranks would take, were each as uneven as the one that was played."""
    waits = [(row.role, _wait(row, ranks)) for row in confirmation.compared]
    if any(wait > _UNEVEN for _, wait in waits):
        told = ", ".join(f"{wait:.0%} to the {role}'s steps" for role, wait in waits)
        console.print(
            f"by how uneven these steps are, waiting for the slowest of {ranks} such ranks adds "
            f"{told}; more where they wait at every collective"
        )


def _wait(row: Compared, ranks: int) -> float:
    # Run by run: one that is slow as a whole was slow for all that its ranks would share.
    runs = [run.measured.step_s for run in row.runs]
    return fmean(slowest_of_s(step_s, ranks) / fmean(step_s) for step_s in runs) - 1
