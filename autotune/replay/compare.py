"""`autotune replay`: searches over a recorded landscape, to compare samplers without a device."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from autotune.errors import StoreError
from autotune.replay.landscape import Landscape
from autotune.search.budget import Budget
from autotune.search.loop import Search
from autotune.search.progress import Silent
from autotune.study.folder import STUDY_DB
from autotune.study.outcome import Status
from autotune.study.store import SAMPLERS, StoredStudy
from autotune.study.view import StudyView

WITHIN = 0.05
"""A config is good from this fraction of the best recorded tokens/s on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerRuns:
    """One sampler's searches over a landscape, one per seed."""

    sampler: str
    curves: tuple[tuple[float, ...], ...]
    """Per seed and launch: the best tokens/s so far, as a fraction of the best recorded."""

    def best_after(self, launches: int) -> tuple[float, float, float]:
        """Return median, worst and best over the seeds after a number of launches."""
        found = [curve[min(launches, len(curve)) - 1] for curve in self.curves]
        return median(found), min(found), max(found)

    @property
    def launches_to_good(self) -> tuple[int | None, ...]:
        """Per seed, launches until a good config was found; None if none was."""
        return tuple(
            next((n for n, part in enumerate(curve, start=1) if part >= 1 - WITHIN), None)
            for curve in self.curves
        )

    @property
    def num_good(self) -> int:
        """Seeds that found a good config."""
        return sum(launches is not None for launches in self.launches_to_good)

    @property
    def median_launches_to_good(self) -> float | None:
        """Over all seeds; one that found none counts as infinite. None for an infinite median."""
        middle = median(math.inf if n is None else n for n in self.launches_to_good)
        return None if math.isinf(middle) else middle

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "sampler": self.sampler,
            "curves": [list(curve) for curve in self.curves],
            "launches_to_good": list(self.launches_to_good),
            "median_launches_to_good": self.median_launches_to_good,
        }


def open_landscape(name: str, *, studies: Path = Path("studies")) -> Landscape:
    """Return the landscape of a file, or of a study in its folder.

    Raises:
        StoreError: neither exists.
    """
    path = Path(name)
    if path.is_file():
        return Landscape.read(path)
    home = path if (path / STUDY_DB).exists() else studies / name
    if not (home / STUDY_DB).exists():
        raise StoreError(f"{name}: neither a landscape file nor a study: no {home / STUDY_DB}")
    stored = StoredStudy(home.name, f"sqlite:///{home / STUDY_DB}", create=False)
    try:
        return Landscape.of(StudyView.of(stored))
    finally:
        stored.close()


def replay(
    landscape: Landscape, *, samplers: Sequence[str], num_seeds: int, num_trials: int
) -> tuple[SamplerRuns, ...]:
    """Search a landscape with each sampler and seed.

    Raises:
        StoreError: a sampler is unknown, or the landscape has no complete trial.
    """
    unknown = [name for name in samplers if name not in SAMPLERS]
    if unknown:
        raise StoreError(f"--sampler {unknown[0]}: must be one of {', '.join(SAMPLERS)}")
    if not landscape.best_tokens_per_s:
        raise StoreError("the landscape has no complete trial: nothing can be found there")
    return tuple(
        SamplerRuns(
            sampler=sampler,
            curves=tuple(
                _curve(landscape, sampler=sampler, seed=seed, num_trials=num_trials)
                for seed in range(num_seeds)
            ),
        )
        for sampler in samplers
    )


def _curve(landscape: Landscape, *, sampler: str, seed: int, num_trials: int) -> tuple[float, ...]:
    setup = landscape.setup
    stored = StoredStudy("replay", "sqlite:///:memory:", create=True)
    Search(
        study=stored,
        evaluator=landscape.evaluator,
        space=setup.space,
        workload=setup.workload,
        base=setup.base,
        ceiling_bytes=setup.ceiling_bytes,
        seed=seed,
        budget=Budget(max_trials=num_trials, max_s=None),
        progress=Silent(),
        sampler=sampler,
        points=landscape.points,
    ).run()
    best, curve = 0.0, []
    for record in stored.records():
        outcome = record.outcome
        if outcome is not None and outcome.status is Status.COMPLETE:
            best = max(best, outcome.tokens_per_s.mean)
        curve.append(best / landscape.best_tokens_per_s)
    stored.close()
    return tuple(curve)


def cut_short(
    landscape: Landscape, replays: Sequence[SamplerRuns], *, num_trials: int
) -> str | None:
    """Return a line about searches that ended before `num_trials` launches; None without any."""
    longest = max(len(curve) for replayed in replays for curve in replayed.curves)
    if longest >= num_trials:
        return None
    return (
        f"--trials {num_trials}: searches ended after {longest} launches, when none of the "
        f"{describe(landscape)['num_points']} recorded points was left to try"
    )


def describe(landscape: Landscape) -> dict[str, Any]:
    """Return a summary of a landscape, as JSON values."""
    outcomes = landscape.evaluator.outcomes
    return {
        "evaluator": landscape.setup.evaluator,
        "model": landscape.setup.workload.model.name,
        "gpus": landscape.setup.workload.world_size,
        "num_points": len(outcomes),
        "num_complete": sum(o.status is Status.COMPLETE for o in outcomes.values()),
        "best_tokens_per_s": landscape.best_tokens_per_s,
    }


def as_json(landscape: Landscape, replays: Sequence[SamplerRuns]) -> str:
    """Return everything as one JSON object."""
    return json.dumps(
        {"landscape": describe(landscape), "replays": [r.to_json() for r in replays]}, indent=2
    )
