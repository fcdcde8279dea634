"""Emulated against measured: the same configs on N real devices, and on one that plays one rank.

``python -m tests.benchmarks.emulated_pairs run --gpus 4 --output pairs.jsonl [--probe FILE]`` runs
each config of `PAIRS` measured, emulated with timed collectives, and emulated without, and adds a
line for each to the file; emulated ones as many at a time as there are devices, so that
``--pairs 9,9`` plays one beside the other. ``... table pairs.jsonl`` prints the errors.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from autotune.ds_config.build import build_ds_config
from autotune.evaluate import TrialRequest
from autotune.job.model_shape import load_model_shape
from autotune.job.workload import Workload
from autotune.predict.training_job import ModelSettings, Training, read_training
from autotune.study.outcome import Outcome, Status
from tests.benchmarks.real_cards import EMULATED, KINDS, MEASURED, UNTIMED, Conditions, opened
from tests.job.workloads import resolve_workload

_ZERO = "zero_optimization"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One config of one model."""

    model: str
    stage: int
    micro_batch: int = 2
    accumulation: int = 1
    checkpointing: bool = False
    zero: Mapping[str, Any] = field(default_factory=dict)
    """More keys of `zero_optimization`."""

    @property
    def values(self) -> dict[str, Any]:
        """Dotted keys to set."""
        return {
            f"{_ZERO}.stage": self.stage,
            "train_micro_batch_size_per_gpu": self.micro_batch,
            **{f"{_ZERO}.{key}": value for key, value in self.zero.items()},
        }


_OFFLOAD = {"offload_optimizer.device": "cpu"}
_LIVE = {"stage3_max_live_parameters": 100_000_000, "stage3_max_reuse_distance": 100_000_000}
_SMALL_BUCKETS = {"reduce_bucket_size": 10_000_000}

PAIRS = (
    Pair(model="1.3b", stage=1, micro_batch=4),
    Pair(model="1.3b", stage=2, micro_batch=4),
    Pair(model="1.3b", stage=2, micro_batch=4, zero={"overlap_comm": False}),
    Pair(model="1.3b", stage=2, micro_batch=4, zero=_SMALL_BUCKETS),
    Pair(model="1.3b", stage=2, micro_batch=2, accumulation=4),
    Pair(model="1.3b", stage=1, micro_batch=2, accumulation=4),
    Pair(model="1.3b", stage=3, micro_batch=4),
    Pair(model="1.3b", stage=3, micro_batch=4, zero=_LIVE),
    Pair(model="1.3b", stage=3, micro_batch=4, zero={"stage3_prefetch_bucket_size": 0}),
    Pair(model="1.3b", stage=3, micro_batch=8, checkpointing=True),
    Pair(model="1.3b", stage=2, micro_batch=4, zero=_OFFLOAD),
    Pair(model="1.3b", stage=3, micro_batch=4, zero=_OFFLOAD),
    Pair(model="7b", stage=1, micro_batch=2, checkpointing=True),
    Pair(model="7b", stage=2, micro_batch=4, checkpointing=True),
    Pair(model="7b", stage=2, micro_batch=4, checkpointing=True, zero={"overlap_comm": False}),
    Pair(model="7b", stage=2, micro_batch=2, accumulation=2, checkpointing=True),
    Pair(model="7b", stage=3, micro_batch=2, checkpointing=True),
    Pair(model="7b", stage=3, micro_batch=4, checkpointing=True),
    Pair(model="7b", stage=3, micro_batch=2),
    Pair(model="7b", stage=3, checkpointing=True, zero=_LIVE),
    Pair(model="7b", stage=3, checkpointing=True, zero={"stage3_prefetch_bucket_size": 0}),
    Pair(model="7b", stage=3, checkpointing=True, zero={"stage3_param_persistence_threshold": 0}),
    Pair(model="7b", stage=3, checkpointing=True, zero=_SMALL_BUCKETS),
    Pair(model="7b", stage=3, micro_batch=2, accumulation=2, checkpointing=True),
)


def request(number: int, pair: Pair, workload: Workload) -> TrialRequest:
    """Return the trial of a pair."""
    return TrialRequest(
        number=number,
        label=f"pair-{number:02d}",
        ds_config=build_ds_config({}, workload, pair.values),
        model_settings={"activation_checkpointing": pair.checkpointing},
    )


def workload_of(pair: Pair, gpus: int) -> Workload:
    """Return a workload whose global batch is that of the pair."""
    return resolve_workload(
        load_model_shape(pair.model),
        gpus=gpus,
        base={},
        global_batch_size=pair.micro_batch * pair.accumulation * gpus,
    )


def training_of(pair: Pair, gpus: int) -> Training:
    """Return a pair as the predictions read it."""
    workload = workload_of(pair, gpus)
    trial = request(0, pair, workload)
    return read_training(trial.ds_config, workload, ModelSettings.of_trial(trial.model_settings))


def run(
    gpus: int,
    output: Path,
    probe: Path | None,
    *,
    kinds: Sequence[str],
    numbers: Sequence[int],
) -> None:
    """Run pairs in some of the ways there are."""
    requests = {number: (PAIRS[number], workload_of(PAIRS[number], gpus)) for number in numbers}
    with TemporaryDirectory() as logs, output.open("a", encoding="utf-8") as file:
        for emulate in (False, True):
            ways = [kind for kind in kinds if (kind != MEASURED) == emulate]
            if not ways:
                continue
            with opened(gpus, emulate=emulate) as pool:
                for kind in ways:
                    conditions = Conditions.of(pool, kind=kind, probe=probe, logs=Path(logs))

                    def one(
                        place: int, number: int, kind: str = kind, of: Conditions = conditions
                    ) -> str:
                        pair, workload = requests[number]
                        trial = request(number, pair, workload)
                        outcome = of.evaluator(workload).evaluate(
                            replace(trial, label=f"{trial.label}-{place}"), lambda *_: None
                        )
                        return json.dumps(row(number, kind, outcome, workload))

                    with ThreadPoolExecutor(pool.num_groups) as executor:
                        for line in executor.map(one, range(len(numbers)), numbers):
                            file.write(line + "\n")
                            file.flush()
                            print(line[:200], file=sys.stderr)


def row(number: int, kind: str, outcome: Outcome, workload: Workload) -> dict[str, Any]:
    """Return what is kept of an outcome."""
    kept: dict[str, Any] = {
        "pair": number,
        "kind": kind,
        "gpus": workload.world_size,
        "status": outcome.status.value,
        "reason": outcome.failure.reason if outcome.failure else None,
        "duration_s": round(outcome.duration_s, 2),
        "beside": list(outcome.neighbours),
    }
    if outcome.measurement is not None:
        ranks = outcome.measurement.ranks
        largest = max(ranks, key=lambda rank: max(m.allocated_bytes or 0 for m in rank.memory))
        kept |= {
            "step_s": [round(s, 4) for s in outcome.measurement.all_step_s],
            "host_loop_ms": [round(s * 1e3, 3) for s in outcome.measurement.host_loop_s],
            "tokens_per_s": outcome.measurement.tokens_per_s.mean,
            "allocated_bytes": max(m.allocated_bytes or 0 for m in largest.memory),
            "reserved_bytes": max(m.reserved_bytes or 0 for m in largest.memory),
            "host_bytes": largest.host_bytes,
            "rank": largest.rank,
        }
    return kept


_COMPARED = (
    ("allocated", EMULATED, "allocated_bytes"),
    ("reserved", EMULATED, "reserved_bytes"),
    ("tokens_per_s", EMULATED, "tokens_per_s"),
    ("untimed_tokens_per_s", UNTIMED, "tokens_per_s"),
)


def steady_s(steps: Sequence[float]) -> float:
    """Return the mean of the later half: stage 3 traces and settles in the first ones."""
    return fmean(steps[len(steps) // 2 :])


def spread(steps: Sequence[float]) -> float:
    """Return how far single steps of the later half lie from their mean, relative."""
    later = steps[len(steps) // 2 :]
    return max(abs(s / fmean(later) - 1) for s in later)


def errors(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, per pair that ran both ways, how far the emulated numbers are off, relative."""
    by_pair: dict[int, dict[str, Mapping[str, Any]]] = {}
    for found in rows:
        if found["status"] == Status.COMPLETE.value:
            by_pair.setdefault(found["pair"], {})[found["kind"]] = found
    return [
        {
            "pair": number,
            "measured_s": steady_s(kinds[MEASURED]["step_s"]),
            "emulated_s": steady_s(kinds[EMULATED]["step_s"]),
            "spread": spread(kinds[MEASURED]["step_s"]),
            "step": steady_s(kinds[EMULATED]["step_s"]) / steady_s(kinds[MEASURED]["step_s"]) - 1,
            **{
                name: kinds[kind][key] / kinds[MEASURED][key] - 1
                for name, kind, key in _COMPARED
                if kind in kinds
            },
        }
        for number, kinds in sorted(by_pair.items())
        if {MEASURED, EMULATED} <= kinds.keys()
    ]


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the errors as a Markdown table, and their summary."""
    found = errors(rows)
    columns = ["model", "ZeRO", "config", "measured step", "allocated", "reserved", "step"]
    columns.append("tokens/s")
    if any("untimed_tokens_per_s" in error for error in found):
        columns.append("untimed")
    print(f"| {' | '.join(columns)} |")
    print(f"| {' | '.join('---' for _ in columns)} |")
    for error in found:
        pair = PAIRS[error["pair"]]
        label = f"{pair.micro_batch} x {pair.accumulation}" + (
            ", checkpointing" if pair.checkpointing else ""
        )
        label += "".join(f", {key} {_short(value)}" for key, value in pair.zero.items())
        cells = [f"{error['allocated']:+.2%}", f"{error['reserved']:+.1%}"]
        cells += [f"{error['step']:+.1%}", f"{error['tokens_per_s']:+.1%}"]
        if "untimed" in columns:
            untimed = error.get("untimed_tokens_per_s")
            cells.append("" if untimed is None else f"{untimed:+.1%}")
        step = f"{error['measured_s']:.3f} s (±{error['spread']:.0%})"
        print(f"| {pair.model} | {pair.stage} | {label} | {step} | {' | '.join(cells)} |")
    for name in ("allocated", "reserved", "step", "tokens_per_s", "untimed_tokens_per_s"):
        sizes = [abs(error[name]) for error in found if name in error]
        if sizes:
            print(f"{name}: {len(sizes)} pairs, median {median(sizes):.2%}, worst {max(sizes):.2%}")


def _short(value: Any) -> str:
    """Return a value as a reader likes it.

    Example:
        >>> _short(100_000_000), _short(0), _short("cpu")
        ('1e8', '0', 'cpu')
    """
    if isinstance(value, int) and value >= 1_000_000:
        return f"{value:.0e}".replace("e+0", "e")
    return str(value)


def main() -> None:
    """Run the pairs, or print the table of a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--gpus", type=int, required=True)
    runs.add_argument("--output", type=Path, required=True)
    runs.add_argument("--probe", type=Path)
    runs.add_argument("--pairs", help="numbers, by commas, also twice [default: all]")
    runs.add_argument("--kinds", default=",".join(KINDS), help="[default: %(default)s]")
    tables = commands.add_parser("table")
    tables.add_argument("rows", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        numbers = given.pairs.split(",") if given.pairs else range(len(PAIRS))
        run(
            given.gpus,
            given.output,
            given.probe,
            kinds=given.kinds.split(","),
            numbers=[int(n) for n in numbers],
        )
    else:
        lines = given.rows.read_text(encoding="utf-8").splitlines()
        print_table([json.loads(line) for line in lines])


if __name__ == "__main__":
    main()
