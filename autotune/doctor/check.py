"""The result of one check of this machine."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    """A run works, but slower, or not with every config."""
    FAIL = "FAIL"
    """A run would fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A line of `autotune doctor`."""

    name: str
    verdict: Verdict
    found: str
    """What was found, or what is wrong with it."""
    cure: str | None = None
    """How to fix it; None for a good result."""

    @property
    def line(self) -> str:
        """The check as one line of text."""
        text = f"{self.verdict:<4}  {self.name:<18}  {' '.join(self.found.split())}"
        return f"{text}; {self.cure}" if self.cure else text

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "name": self.name,
            "verdict": self.verdict.value.lower(),
            "found": self.found,
            "cure": self.cure,
        }


Group = Callable[[], Iterable[Check]]
"""Runs the checks of one kind."""


def ok(name: str, found: str) -> Check:
    """Return a check with a good result."""
    return Check(name=name, verdict=Verdict.OK, found=found)


def warn(name: str, found: str, cure: str) -> Check:
    """Return a check with a fault that a run survives."""
    return Check(name=name, verdict=Verdict.WARN, found=found, cure=cure)


def fail(name: str, found: str, cure: str) -> Check:
    """Return a check with a fault that would end a run."""
    return Check(name=name, verdict=Verdict.FAIL, found=found, cure=cure)


def run_group(name: str, group: Group) -> list[Check]:
    """Return the checks of a group; a crash becomes a failed check.

    Args:
        name: of the check, in case of a crash.
        group: runs them.
    """
    try:
        return list(group())
    except Exception as error:  # noqa: BLE001  any exception is reported as a failed check
        return [
            warn(
                name,
                f"could not be checked: {type(error).__name__}: {error}",
                "please report this with the output of `autotune doctor --json`",
            )
        ]
