"""What slowed a study's runs down that has nothing to do with their configs."""

from statistics import median

from rich.console import Console

from autotune.study.outcome import Measurement
from autotune.study.view import StudyView

_SLOW_HOST = 1.3
"""Beyond what a free processor's turbo clock explains. Two virtual processors that share a core
take 1.5 to 1.8 times as long when both are busy."""


def print_conditions(console: Console, study: StudyView) -> None:
    """Say in which runs a device, or the host's processor, was slower than in others."""
    _print_throttled(console, study)
    _print_slow_host(console, study)


def _print_throttled(console: Console, study: StudyView) -> None:
    """Say which numbers come from a device that heat or its power supply had slowed down."""
    found = [(name, measurement.throttled) for name, measurement in _measured_runs(study)]
    slowed = [(name, limits) for name, limits in found if limits]
    if slowed:
        limits = sorted({limit for _, found_limits in slowed for limit in found_limits})
        console.print(
            f"[bold]throttled[/bold]: {', '.join(limits)}: the devices ran slower than they can in "
            f"{len(slowed)} runs, first in {slowed[0][0]}"
        )


def _print_slow_host(console: Console, study: StudyView) -> None:
    """Say which runs had a slower host than most: a host that is always slow favours none."""
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
    """Return every run that took steps, named for a reader: trials, then confirmation runs."""
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
