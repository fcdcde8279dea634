"""A landscape: the trials of a study as one compact file, for searches without a device."""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from autotune.errors import StoreError
from autotune.replay.evaluator import ReplayEvaluator
from autotune.replay.points import RecordedPoints
from autotune.study.candidate import Candidate
from autotune.study.outcome import Outcome, Status
from autotune.study.view import StudySetup, StudyView

FORMAT = 1
_ANSWERS = frozenset(
    {
        Status.COMPLETE,
        Status.SLOW,
        Status.OVER_CEILING,
        Status.OOM_DEVICE,
        Status.OOM_HOST,
        Status.INVALID,
        Status.REJECTED,
    }
)
"""Statuses that depend on the config; a crash or a time-out may be caused by the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landscape:
    """The recorded trials of one workload and space."""

    setup: StudySetup
    trials: tuple[tuple[Candidate, Outcome], ...]

    @classmethod
    def of(cls, study: StudyView) -> Self:
        """Return a study's trials that a replay can use."""
        return cls(
            setup=study.setup,
            trials=tuple(
                (record.candidate, record.outcome)
                for record in study.records
                if record.outcome is not None
                and not record.interrupted
                and record.outcome.status in _ANSWERS
            ),
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a landscape file.

        Raises:
            StoreError: it is not a landscape file.
        """
        try:
            stored = json.loads(gzip.decompress(path.read_bytes()))
            if stored["format"] != FORMAT:
                raise StoreError(
                    f"{path}: format {stored['format']}: this autotune reads {FORMAT}; "
                    "write it again"
                )
            return cls(
                setup=StudySetup.from_json(stored["setup"]),
                trials=tuple(
                    (Candidate.from_json(trial["candidate"]), Outcome.from_json(trial["outcome"]))
                    for trial in stored["trials"]
                ),
            )
        except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
            raise StoreError(
                f"{path}: not a landscape ({error}); write one with `autotune replay STUDY --save`"
            ) from error

    def write(self, path: Path) -> None:
        """Write the file, the same bytes for the same trials.

        Raises:
            StoreError: it cannot be written.
        """
        text = json.dumps(self.to_json(), separators=(",", ":"), sort_keys=True)
        try:
            path.write_bytes(gzip.compress(text.encode(), mtime=0))
        except OSError as error:
            raise StoreError(
                f"--save {path}: cannot be written: {error.strerror}; name a file in a folder "
                "that exists"
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "format": FORMAT,
            "setup": self.setup.to_json(),
            "trials": [
                {"candidate": candidate.to_json(), "outcome": outcome.to_json()}
                for candidate, outcome in self.trials
            ],
        }

    @property
    def points(self) -> RecordedPoints:
        """The recorded candidates."""
        return RecordedPoints.of(
            (candidate for candidate, _ in self.trials),
            space=self.setup.space,
            world_size=self._world_size,
        )

    @property
    def evaluator(self) -> ReplayEvaluator:
        """Returns the outcome of every point."""
        outcomes: dict[str, Outcome] = {}
        for candidate, outcome in self.trials:
            outcomes.setdefault(candidate.identity(self._world_size), outcome)
        return ReplayEvaluator(outcomes=outcomes, world_size=self._world_size)

    @property
    def best_tokens_per_s(self) -> float:
        """Of the fastest complete trial; 0 if none is complete."""
        return max(speeds(self.evaluator.outcomes).values(), default=0.0)

    @property
    def _world_size(self) -> int:
        return self.setup.workload.world_size


def speeds(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """Return tokens/s of the complete outcomes, by the same keys."""
    return {
        key: outcome.tokens_per_s.mean
        for key, outcome in outcomes.items()
        if outcome.status is Status.COMPLETE
    }
