"""Progress of a search on stderr: live on a terminal, a line per trial in a log."""

import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.search.progress import Progress, Silent
from autotune.study.candidate import Candidate
from autotune.study.outcome import Outcome, Phase, Status

_TERMINAL_WIDTH = 80
_LOG_WIDTH = 200
"""Characters of a reason: a line of a log may be long."""


@contextmanager
def live_progress(*, max_trials: int) -> Iterator[Progress]:
    """Show running trials, the best so far and the time left, while the context lasts."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield _OnTerminal(live, max_trials)


class _Lines(Silent):
    """Prints a line per decision and per ended trial, for a log."""

    def __init__(self) -> None:
        self._left_s = 0.0
        self._lock = threading.Lock()

    def noted(self, text: str) -> None:
        print(text, file=sys.stderr)

    def finished(self, label: str, candidate: Candidate, outcome: Outcome) -> None:
        with self._lock:
            left = f"  ({_left(self._left_s)})" if self._left_s else ""
            ended = _ended(label, candidate, outcome, width=_LOG_WIDTH)
            print(f"{ended}{left}", file=sys.stderr, flush=True)

    def remaining(self, *, num_launched: int, left_s: float) -> None:
        with self._lock:
            self._left_s = left_s


def _ended(label: str, candidate: Candidate, outcome: Outcome, *, width: int) -> str:
    """Return the line of a trial that has ended.

    Args:
        label: the trial's.
        candidate: its config.
        outcome: how it ended.
        width: most characters of a reason.
    """
    line = f"{label}  {outcome.status.value:<12}  {candidate.source:<18}"
    if outcome.status is Status.COMPLETE:
        line += f"  {outcome.tokens_per_s.mean:,.0f} tokens/s{_how(outcome)}"
    elif outcome.failure is not None:
        # A reason may be the whole text of an exception.
        line += f"  {textwrap.shorten(outcome.failure.reason, width, placeholder=' ...')}"
    return line


def _how(outcome: Outcome) -> str:
    """Return how a speed was made; empty for real ranks."""
    if outcome.modelled:
        return ", predicted"
    return ", emulated" if outcome.evaluator == EvaluatorKind.EMULATED else ""


def _left(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"about {minutes} min left" if minutes else "less than a minute left"


class _OnTerminal:
    """Shows a line per running trial; finished ones scroll by above."""

    def __init__(self, live: Live, max_trials: int) -> None:
        self._live = live
        self._max_trials = max_trials
        self._running: dict[str, str] = {}
        self._num_launched = 0
        self._left_s = 0.0
        self._best: tuple[float, str] | None = None
        self._lock = threading.Lock()
        self._draw()

    def noted(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False)

    def launched(self, label: str, candidate: Candidate) -> None:
        with self._lock:
            self._running[label] = f"{candidate.source}: launching"
            self._draw()

    def marked(self, label: str, rank: int, phase: Phase, where: str) -> None:
        if rank == 0:
            with self._lock:
                self._running[label] = f"{phase}: {where}"
                self._draw()

    def finished(self, label: str, candidate: Candidate, outcome: Outcome) -> None:
        with self._lock:
            self._running.pop(label, None)
            if outcome.status is Status.COMPLETE:
                tokens_per_s = outcome.tokens_per_s.mean
                if self._best is None or tokens_per_s > self._best[0]:
                    self._best = tokens_per_s, f"{label}{_how(outcome)}"
            self._live.console.print(
                _ended(label, candidate, outcome, width=_TERMINAL_WIDTH),
                highlight=False,
                markup=False,
            )
            self._draw()

    def remaining(self, *, num_launched: int, left_s: float) -> None:
        with self._lock:
            self._num_launched, self._left_s = num_launched, left_s
            self._draw()

    def _draw(self) -> None:
        table = Table.grid(padding=(0, 2))
        best = f"best {self._best[0]:,.0f} tokens/s ({self._best[1]})" if self._best else ""
        left = _left(self._left_s) if self._left_s else ""
        table.add_row(f"launched {self._num_launched} of {self._max_trials}", best, left)
        for label, state in self._running.items():
            table.add_row(label, state)
        self._live.update(table)
