"""Measured step times on H200s, as jobs: what the speed model is fitted to and judged by."""

import json
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean

from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.predict.links.probe_file import read_probe
from autotune.predict.throughput import SpeedSurroundings
from autotune.predict.throughput.constants import Rates
from autotune.predict.throughput.predict import step_items
from autotune.predict.training_job import Training
from autotune.replay.landscape import Landscape
from autotune.study.candidate import training_of as training_of_candidate
from autotune.study.outcome import Status
from tests.benchmarks.emulated_pairs import PAIRS, training_of
from tests.predict.rows import DATA, H200, more_rows, rows

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
    """Steady: of two cards as recorded, else the mean of the last two steps; of trials the mean."""
    num_steps: int
    """That were timed."""
    is_complete: bool = True
    """Of a trial: not stopped early."""
    slower_call_s: float = 0.0
    """What a collective cost the host beyond a real one."""

    @property
    def model(self) -> str:
        return self.training.model.name

    @property
    def tokens_per_s(self) -> float:
        """Of all ranks."""
        return self._tokens / self.step_s

    def predicted_tokens_per_s(self, rates: Rates) -> float:
        """Return the same by some constants."""
        return self._tokens / self.predicted_s(rates)

    @property
    def _tokens(self) -> int:
        return self.training.world_size * self.training.accumulation * self.training.tokens

    @property
    def on_two_cards(self) -> bool:
        return not self.surroundings.silent

    def predicted_s(self, rates: Rates) -> float:
        """Return the step time by some constants."""
        slower = replace(rates, call_s=rates.call_s + self.slower_call_s)
        return sum(step_items(self.training, self.surroundings, rates=slower).values())


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
                num_steps=len(row.measured["step_s"].split()),
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
            num_steps=len(row.measured["step_s"].split()),
        )
        for row in more_rows()
        if row.measured["step_s"]
    )


SLOWER_CALL_S = 2e-4
"""What a collective cost the host of emulated ranks beyond NCCL's call until 2026-11-29, by the
trials that waited for it: 0 to 0.28 ms; 0.1 where nothing waited. torch's launcher of kernels is
why."""


@cache
def pairs(hosts: str, *, kind: str = EvaluatorKind.MEASURED) -> tuple[Timed, ...]:
    """Return the trials of `emulated_pairs.PAIRS` that completed on some H200s.

    With the links, copies and CPUAdam that a probe of the same machine measured.

    Args:
        hosts: `x2`, `x2_other_host`, `x2_third_host` or `x4`: the files' names.
        kind: measured or emulated; of those on four cards not the ones with offload, which were
            emulated when only CPUAdam was slowed down, and not yet the whole offloaded step.
    """
    probe = read_probe(DATA / f"h200_{hosts}_probe.json")
    older = hosts == "x4" and kind == EvaluatorKind.EMULATED
    found = []
    for line in (DATA / f"h200_{hosts}_pairs.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] != kind or row["status"] != Status.COMPLETE.value:
            continue
        pair, gpus = PAIRS[row["pair"]], row["gpus"]
        if older and "offload_optimizer.device" in pair.zero:
            continue
        around = SpeedSurroundings.of(H200, local_ranks=gpus, probe=probe)
        if kind == EvaluatorKind.EMULATED:
            around = around.emulated(num_threads=int(probe["cpu_adam"]["num_threads"]))
        training = training_of(pair, gpus)
        tokens = gpus * training.accumulation * training.tokens
        found.append(
            Timed(
                name=f"{hosts}-{row['pair']}",
                training=training,
                surroundings=around,
                step_s=tokens / row["tokens_per_s"],
                num_steps=len(row["step_s"]),
                slower_call_s=SLOWER_CALL_S if older else 0.0,
            )
        )
    return tuple(found)


@cache
def landscape(*, older: bool = False) -> tuple[Timed, ...]:
    """Return the trials of a recorded landscape that have a speed: emulated, timed by catalogue.

    Those that were stopped early count too: they have one to three steps.

    Args:
        older: the one of 61 outcomes from 2026-11-29.
    """
    name = "older_landscape" if older else "landscape"
    found = Landscape.read(DATA / f"llama_1.3b_8x_{name}.json.gz")
    setup = found.setup
    around = SpeedSurroundings.of(H200, local_ranks=setup.workload.world_size).emulated(
        num_threads=setup.environment["threads_per_rank"]
    )
    return tuple(
        Timed(
            name=f"{name}-{number}",
            training=training_of_candidate(candidate, setup.workload),
            surroundings=around,
            slower_call_s=SLOWER_CALL_S if older else 0.0,
            num_steps=len(outcome.measured.all_step_s),
            is_complete=outcome.status is Status.COMPLETE,
            step_s=outcome.measured.tokens_per_step / outcome.measured.tokens_per_s.mean,
        )
        for number, (candidate, outcome) in enumerate(found.trials)
        if outcome.status in (Status.COMPLETE, Status.SLOW) and outcome.measurement is not None
    )


@cache
def fitted() -> tuple[Timed, ...]:
    """Return all runs that the constants are fitted to: no landscape, no later pairs."""
    return (*timed(), *pairs("x2_other_host"), *pairs("x4"))
