"""Caveats of a study's numbers: what they omit, and runs that the machine slowed down."""

from statistics import fmean, median

from rich.console import Console

from autotune.evaluate.evaluator_kind import EvaluatorKind, caveats_of
from autotune.job.ceiling import format_gib
from autotune.study.confirmation import Compared, Confirmation
from autotune.study.outcome import Measurement
from autotune.study.step_times import slowest_of_s
from autotune.study.view import StudyView

_UNEVEN = 0.01
"""Waits for the slowest rank below this share of a step are not printed."""
_SLOW_HOST = 1.3
"""More than the turbo clock of an idle processor explains. Two virtual processors that share a core
take 1.5 to 1.8 times as long when both are busy."""


def print_omissions(console: Console, study: StudyView, confirmation: Confirmation) -> None:
    """Print what the numbers of this kind of evaluator omit."""
    evaluator = study.setup.evaluator
    if clauses := caveats_of(evaluator, study.setup.communication):
        console.print(f"{evaluator}, so not in these numbers: {'; '.join(clauses)}")
    charged_bytes = max(run.charged_bytes for run in confirmation.exported_runs)
    if charged_bytes:
        console.print(
            f"{format_gib(charged_bytes)} of the ceiling were kept free for the communication "
            "buffers of real ranks (NCCL); the peaks above exclude them"
        )
    if evaluator == EvaluatorKind.EMULATED:
        _print_waits(console, confirmation, ranks=study.setup.workload.world_size)


def _print_waits(console: Console, confirmation: Confirmation, *, ranks: int) -> None:
    """Print how much waiting adds to real ranks whose steps vary as much as the played one's."""
    waits = [(row.role, _wait(row, ranks)) for row in confirmation.compared]
    if any(wait > _UNEVEN for _, wait in waits):
        added = ", ".join(f"{wait:.0%} to the {role}'s steps" for role, wait in waits)
        console.print(
            f"by how uneven these steps are, waiting for the slowest of {ranks} such ranks adds "
            f"{added}; more where they wait at every collective"
        )


def _wait(row: Compared, ranks: int) -> float:
    # Run by run: what slows a whole run would slow all of its ranks.
    runs = [run.measured.step_s for run in row.runs]
    return fmean(slowest_of_s(step_s, ranks) / fmean(step_s) for step_s in runs) - 1


def print_conditions(console: Console, study: StudyView) -> None:
    """Print the runs in which a device, or the host's processor, was slower than in others."""
    _print_throttled(console, study)
    _print_slow_host(console, study)


def _print_throttled(console: Console, study: StudyView) -> None:
    """Print the runs in which heat or the power supply slowed a device down."""
    found = [(name, measurement.throttled) for name, measurement in _measured_runs(study)]
    slowed = [(name, limits) for name, limits in found if limits]
    if slowed:
        limits = sorted({limit for _, found_limits in slowed for limit in found_limits})
        console.print(
            f"[bold]throttled[/bold]: {', '.join(limits)}: the devices ran slower than they can in "
            f"{len(slowed)} runs, first in {slowed[0][0]}"
        )


def _print_slow_host(console: Console, study: StudyView) -> None:
    """Print the runs with a slower host than most: a host that is always slow favours no config."""
    found = [(name, median(m.host_loop_s)) for name, m in _measured_runs(study) if m.host_loop_s]
    if not found:
        return
    usual_s = median(loop_s for _, loop_s in found)
    slowed = [(name, loop_s / usual_s) for name, loop_s in found]
    slowed = [(name, times) for name, times in slowed if times > _SLOW_HOST]
    if slowed:
        runs = "1 run" if len(slowed) == 1 else f"{len(slowed)} of {len(found)} runs"
        console.print(
            f"[bold]slow host[/bold]: in {runs} a rank's Python took up to "
            f"{max(times for _, times in slowed):.1f} times as long as in the median run, "
            f"first in {slowed[0][0]}; steps that wait for it may be slower for that reason alone "
            "(other load, or virtual processors that share a core)"
        )


def _measured_runs(study: StudyView) -> list[tuple[str, Measurement]]:
    """Return every run with a measurement, and its name: trials, then confirmation runs."""
    trials = [(f"trial {record.number}", record.outcome) for record in study.records]
    confirmed = [
        ("a confirmation run", run)
        for confirmation in study.confirmations
        for run in confirmation.runs
    ]
    return [
        (name, outcome.measurement)
        for name, outcome in (*trials, *confirmed)
        if outcome is not None and outcome.measurement is not None
    ]
