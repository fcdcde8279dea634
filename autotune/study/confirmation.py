"""Repeated runs of a winner and a baseline: which is exported, and how much faster it is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.predict.throughput.uncertainty import PAIR
from autotune.serialization import Serializable
from autotune.study.candidate import TrialRecord
from autotune.study.outcome import Outcome, Status
from autotune.study.step_times import Interval, mean_interval

LOSS_TOLERANCE = 2e-3
"""Largest relative difference of mean losses, step by step, that counts as the same training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A config with runs that all completed."""

    role: str
    """baseline, winner, or challenger: a winner that beats nothing."""
    number: int
    runs: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation(Serializable):
    """Repeated runs of two trials; `baseline` and its runs are empty if no baseline fits."""

    skips_unknown_keys = True

    winner: int
    """Number of the trial that was fastest in the search."""
    baseline: int | None
    """Number of the fastest baseline."""
    winner_runs: tuple[Outcome, ...]
    baseline_runs: tuple[Outcome, ...]
    ended_at: str | None = None
    """When the last run ended, ISO 8601 in UTC; None if recorded by an older version."""

    @property
    def failure(self) -> str | None:
        """Why the winner cannot be exported, or None."""
        if (failure := _failure_of(self.winner_runs)) is not None:
            return failure
        if (difference := self.loss_difference) is not None and difference > LOSS_TOLERANCE:
            return (
                f"{Status.DIVERGED}: its losses differ from the baseline's by up to "
                f"{difference:.2%}, from the same weights and data"
            )
        return None

    @property
    def runs(self) -> tuple[Outcome, ...]:
        """Every run once: a baseline that is confirmed alone is also the winner."""
        alone = self.winner == self.baseline
        return self.winner_runs if alone else (*self.winner_runs, *self.baseline_runs)

    @property
    def compared(self) -> tuple[Compared, ...]:
        """Rows to print: the baseline if its runs completed, and the winner."""
        found = []
        if self.baseline is not None and self.baseline_holds:
            runs = self.baseline_runs
            found.append(Compared(role="baseline", number=self.baseline, runs=runs))
        if self.failure is None and self.winner != self.baseline:
            role = "challenger" if self.keeps_baseline else "winner"
            found.append(Compared(role=role, number=self.winner, runs=self.winner_runs))
        return tuple(found)

    @property
    def exported(self) -> int | None:
        """Number of the trial to export; None if neither can be."""
        if self.keeps_baseline:
            return self.baseline
        return self.winner if self.failure is None else None

    @property
    def exported_runs(self) -> tuple[Outcome, ...]:
        """The runs of the exported trial."""
        return self.winner_runs if self.exported == self.winner else self.baseline_runs

    @property
    def baseline_holds(self) -> bool:
        """Whether every run of the baseline completed."""
        return bool(self.baseline_runs) and self.baseline_failure is None

    @property
    def baseline_failure(self) -> str | None:
        """Why nothing can be compared with the baseline, or None."""
        return _failure_of(self.baseline_runs)

    @property
    def loss_difference(self) -> float | None:
        """Largest relative difference of the two trials' losses.

        None without a baseline, and where ranks were emulated.
        """
        if not self.baseline_holds or self.winner == self.baseline:
            return None
        if not all(run.has_true_losses for run in (*self.winner_runs, *self.baseline_runs)):
            return None
        pairs = [
            (ours, theirs)
            for run, other in zip(self.winner_runs, self.baseline_runs, strict=False)
            if _failure_of([run]) is None
            for ours, theirs in zip(global_losses(run), global_losses(other), strict=False)
        ]
        return max((abs(a / b - 1) for a, b in pairs), default=None)

    @property
    def ratio(self) -> Interval | None:
        """Winner's over baseline's tokens/s, round by round; None where one of them failed.

        For modelled runs, which do not vary, the interval is the model's error.
        """
        if not self.baseline_holds or self.winner == self.baseline or self.failure is not None:
            return None
        if self.winner_runs[0].modelled is not None:
            return _modelled_ratio(self.winner_runs[0], self.baseline_runs[0])
        return mean_interval(
            [
                ours.tokens_per_s.mean / theirs.tokens_per_s.mean
                for ours, theirs in zip(self.winner_runs, self.baseline_runs, strict=True)
            ]
        )

    @property
    def keeps_baseline(self) -> bool:
        """Whether the winner failed, or is not faster than the baseline beyond the spread."""
        if not self.baseline_holds:
            return False
        return self.ratio is None or self.ratio.low <= 1.0


def is_complete(record: TrialRecord) -> bool:
    """Whether a trial ran to its end and fits."""
    return record.outcome is not None and record.outcome.status is Status.COMPLETE


def tokens_per_s(record: TrialRecord) -> float:
    """Return the tokens/s of a complete trial."""
    assert record.outcome is not None
    return record.outcome.tokens_per_s.mean


def best_of(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the complete trial with the most tokens/s, or None."""
    return max(filter(is_complete, records), key=tokens_per_s, default=None)


def global_losses(run: Outcome) -> list[float]:
    """Return the mean loss over all ranks, one per optimizer step that every rank has."""
    per_rank = [rank.losses for rank in run.measured.ranks]
    return [sum(losses) / len(losses) for losses in zip(*per_rank, strict=False)]


def _modelled_ratio(winner: Outcome, baseline: Outcome) -> Interval:
    ratio, width = winner.tokens_per_s.mean / baseline.tokens_per_s.mean, math.exp(PAIR)
    return Interval(ratio, ratio / width, ratio * width)


def _failure_of(runs: Sequence[Outcome]) -> str | None:
    """Return why repeated runs cannot be used, or None."""
    for run in runs:
        if run.failure is not None:
            return f"{run.status}: {run.failure.reason}"
        if run.has_true_losses and not all(map(math.isfinite, global_losses(run))):
            return f"{Status.DIVERGED}: its loss is not a finite number"
    return None
