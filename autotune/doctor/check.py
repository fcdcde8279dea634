"""One thing that a run needs, and how it stands on this machine."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """How a check came out."""

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
    """What is there, or what is wrong with it."""
    cure: str | None = None
    """What to do; None where there is nothing to do."""

    @property
    def line(self) -> str:
        """The check for a reader, in one line."""
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
"""Makes the checks of one kind."""


def ok(name: str, found: str) -> Check:
    """Return a check that came out well."""
    return Check(name=name, verdict=Verdict.OK, found=found)


def warn(name: str, found: str, cure: str) -> Check:
    """Return a check that a run survives."""
    return Check(name=name, verdict=Verdict.WARN, found=found, cure=cure)


def fail(name: str, found: str, cure: str) -> Check:
    """Return a check that would end a run."""
    return Check(name=name, verdict=Verdict.FAIL, found=found, cure=cure)


def made(name: str, group: Group) -> list[Check]:
    """Return the checks of a group; one that crashes is a line too.

    Args:
        name: of the line, should it crash.
        group: makes them.
    """
    try:
        return list(group())
    except Exception as error:  # noqa: BLE001  whatever breaks a check is news for its reader
        return [
            warn(
                name,
                f"could not be checked: {type(error).__name__}: {error}",
                "please report this with the output of `autotune doctor --json`",
            )
        ]
