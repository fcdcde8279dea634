"""Measured step times on H200s, as jobs: what the speed model is fitted to and judged by."""

from dataclasses import dataclass
from functools import cache
from statistics import fmean

from autotune.predict.throughput import SpeedSurroundings
from autotune.predict.throughput.predict import step_items
from autotune.predict.throughput.rates import Rates
from autotune.predict.training import Training
from tests.predict.rows import H200, more_rows, rows

_ALONE = SpeedSurroundings.of(H200, local_ranks=1).alone()
"""An emulated rank sends nothing and has the host's cores to itself."""
_PAIR = SpeedSurroundings.of(H200, local_ranks=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One run."""

    name: str
    training: Training
    surroundings: SpeedSurroundings
    step_s: float
    """Steady: of two cards as recorded, else the mean of the last two steps."""

    @property
    def model(self) -> str:
        return self.training.model.name

    @property
    def on_two_cards(self) -> bool:
        return not self.surroundings.silent

    def predicted_s(self, rates: Rates) -> float:
        """Return the step time by some constants."""
        return sum(step_items(self.training, self.surroundings, rates=rates).values())


@cache
def timed() -> tuple[Timed, ...]:
    """Return the emulated runs of h200_memory.csv and the real ones of h200_two_gpus.csv."""
    found = []
    for row in rows():
        pair = row.name.startswith("pair")
        if not row.completed or (pair and row.emulated):
            continue
        steady = row.measured.get("steady_step_s")
        last_two = row.measured["step_s"].split()[-2:]
        found.append(
            Timed(
                name=row.name,
                training=row.training,
                surroundings=_PAIR if pair else _ALONE,
                step_s=float(steady) if steady else fmean(map(float, last_two)),
            )
        )
    return tuple(found)


@cache
def untouched() -> tuple[Timed, ...]:
    """Return the runs of h200_memory_more.csv, which no constant was fitted to; their last step.

    Small models of several families, most of them bound by a host that was quicker than the one
    that the constants are from.
    """
    return tuple(
        Timed(
            name=row.name,
            training=row.training,
            surroundings=_ALONE,
            step_s=float(row.measured["step_s"].split()[-1]),
        )
        for row in more_rows()
        if row.measured["step_s"]
    )
