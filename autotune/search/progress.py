"""Events that a search reports while it runs."""

from typing import Protocol

from autotune.study.candidate import Candidate
from autotune.study.outcome import Outcome, Phase


class Progress(Protocol):
    """Receives the events of a search; may be called from several threads."""

    def noted(self, text: str) -> None:
        """The search made a decision that a user should know."""

    def launched(self, label: str, candidate: Candidate) -> None:
        """A trial was launched."""

    def marked(self, label: str, rank: int, phase: Phase, where: str) -> None:
        """A rank reported progress."""

    def finished(self, label: str, candidate: Candidate, outcome: Outcome) -> None:
        """A trial has ended."""

    def remaining(self, *, num_launched: int, left_s: float) -> None:
        """How many trials were launched, and an estimate of the seconds until the last one ends."""


class Silent:
    """Ignores all events."""

    def noted(self, text: str) -> None:
        """Do nothing."""

    def launched(self, label: str, candidate: Candidate) -> None:
        """Do nothing."""

    def marked(self, label: str, rank: int, phase: Phase, where: str) -> None:
        """Do nothing."""

    def finished(self, label: str, candidate: Candidate, outcome: Outcome) -> None:
        """Do nothing."""

    def remaining(self, *, num_launched: int, left_s: float) -> None:
        """Do nothing."""
