"""Every tokens/s again, from the raw step times in `trials.csv`, with arithmetic of its own."""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats


@dataclass(frozen=True, slots=True)
class Run:
    """A run of `trials.csv`: what is written, and what its step times say."""

    trial: int
    status: str
    written: float
    computed: float
    peak_bytes: int


def read_runs(folder: Path) -> dict[str, Run]:
    """Return the measured runs of a study folder by label."""
    rows = defaultdict(list)
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["boundary_s"]:
                rows[row["label"]].append(row)
    return {label: _run(ranks) for label, ranks in rows.items()}


def _run(ranks: Sequence[dict[str, str]]) -> Run:
    first = ranks[0]
    a, t = int(float(first["accumulation"])), int(float(first["timed_accumulation"]))
    per_rank = []
    for row in ranks:
        inner = [float(x) for x in row["inner_s"].split()]
        boundary = [float(x) for x in row["boundary_s"].split()]
        # (a - 1) inner micro steps and the boundary; t - 1 inner ones were timed together.
        share = (a - 1) / (t - 1) if a > 1 else 0.0
        per_rank.append([share * i + b for i, b in zip(inner, boundary, strict=True)])
    slowest = [max(steps) for steps in zip(*per_rank, strict=True)]
    kept = slowest[_warmup(slowest) :]
    return Run(
        trial=int(first["trial"]),
        status=first["status"],
        written=float(first["tokens_per_s"]),
        computed=float(first["tokens_per_step"]) * len(kept) / math.fsum(kept),
        peak_bytes=max(int(float(row["peak_bytes"])) for row in ranks),
    )


def _warmup(steps: Sequence[float]) -> int:
    """Cut, of at most half the steps, where sum((x - mean)^2) / n^2 of the rest is least."""
    best = (math.inf, 0)
    for cut in range(len(steps) // 2 + 1):
        rest = steps[cut:]
        if len(rest) > 1:
            mean = math.fsum(rest) / len(rest)
            best = min(best, (math.fsum((x - mean) ** 2 for x in rest) / len(rest) ** 2, cut))
    return best[1]


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean, and the 95 % interval that scipy's own t test gives."""
    mean = math.fsum(values) / len(values)
    if len(set(values)) == 1:
        return mean, mean, mean
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    return mean, max(float(low), 0.0), float(high)


def check_numbers(folder: Path, record: dict[str, Any], table: str) -> int:
    """Check `trials.csv`, `record.json` and the printed table; return how many runs there are."""
    runs = read_runs(folder)
    for label, run in runs.items():
        assert math.isclose(run.written, run.computed, rel_tol=1e-9), label
    winner, baseline = _confirmations(runs)
    exported = baseline if record["keeps_baseline"] else winner
    _check_interval(record["tokens_per_s"], [run.computed for run in exported])
    assert record["memory"]["peak_bytes"] == max(run.peak_bytes for run in exported)
    assert {run.trial for run in exported} == {record["trial"]}
    printed = dict(
        re.findall(r"│ (baseline|winner|challenger|ratio) +│ +\d* │ +([\d,.]+) │", table)
    )
    rows = {"baseline": baseline}
    if winner != baseline:
        rows["challenger" if record["keeps_baseline"] else "winner"] = winner
        ratios = [w.computed / b.computed for w, b in zip(winner, baseline, strict=True)]
        recorded = record["challenger"] if record["keeps_baseline"] else record["baseline"]
        _check_interval(
            {
                "value": recorded["ratio"],
                "low": recorded["ratio_low"],
                "high": recorded["ratio_high"],
            },
            ratios,
        )
        assert printed.pop("ratio") == f"{interval(ratios)[0]:.3f}"
    _check_interval(record["baseline"]["tokens_per_s"], [run.computed for run in baseline])
    assert printed == {
        role: f"{interval([run.computed for run in of_role])[0]:,.0f}"
        for role, of_role in rows.items()
    }
    return len(runs)


def _confirmations(runs: dict[str, Run]) -> tuple[list[Run], list[Run]]:
    """Return the runs of the last confirmation's winner and baseline, round by round."""
    last = [label for label in runs if label.startswith("confirm")][-1].split("-")[1]
    winner = [run for label, run in runs.items() if label.startswith(f"confirm-{last}-winner")]
    baseline = [run for label, run in runs.items() if label.startswith(f"confirm-{last}-base")]
    return winner, baseline or winner


def _check_interval(recorded: dict[str, float], values: Sequence[float]) -> None:
    for name, value in zip(("value", "low", "high"), interval(values), strict=True):
        assert math.isclose(recorded[name], value, rel_tol=1e-6, abs_tol=1e-9), name
