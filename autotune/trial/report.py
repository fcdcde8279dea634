"""What a slot reports about a rank when its trial has ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.serialization import Serializable
from autotune.study.outcome import Phase, RankMeasurement


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """Why one rank has no measurement."""

    kind: str
    """A `autotune.trial.failure.FailureKind`."""
    phase: Phase
    message: str
    at: float
    """Seconds since the epoch, on the rank's node."""
    progress: int
    """How many progress marks the rank had sent; in a hang, the rank with the fewest caused it."""
    needed_bytes: int | None = None
    short_bytes: int | None = None
    suspended: bool = False
    """Whether the process was suspended by a signal (SIGSTOP) when it was ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport(Serializable):
    """One rank's end: a measurement or a failure, and its log."""

    rank: int
    device: str
    """Host and device, for a reader."""
    log: str
    measurement: RankMeasurement | None = None
    stop: str | None = None
    """Why its steps ended, if they did: `autotune.trial.stop_rule.Stop`."""
    probed: Mapping[str, Any] | None = None
    """Of a probe: the result of `autotune.trial.probe.run`."""
    failure: RankFailure | None = None
    forked_at: float = 0.0
    """Seconds since the epoch, on the rank's node."""
    exited_at: float = 0.0
