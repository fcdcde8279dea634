"""Runs rows of `memory_rows` under limits of the allocator that a plan lists, on one CUDA device.

``python -m tests.benchmarks.memory_caps plan.csv --out caps.csv``. The plan has a line a row:
``row_id``, ``limit_bytes_fits`` (the row should train under it) and ``limit_bytes_fails`` (it
should not). A limit is what torch's allocator may reserve: the memory fraction times the card.

A row fits when all steps end and no step from the third on makes the allocator give back its cache
and try again; that it does so in initialisation or in the first two steps does no harm.
"""

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.job.ceiling import GIB
from tests.benchmarks.memory_rows.lines import open_writer
from tests.benchmarks.memory_rows.progress import say
from tests.benchmarks.memory_rows.rows import choose
from tests.benchmarks.memory_rows.runner import Runner, set_environment

NUM_STEPS = 5
WARM_UP_STEPS = 2
COLUMNS = (
    "row_id",
    "limit_bytes",
    "expected",
    "found",
    "as_predicted",
    "status",
    "peak_allocated_gib",
    "peak_reserved_gib",
    "retries_by_step",
    "alloc_retries",
    "outside_gib",
    "step_s",
    "row_s",
    "message",
)


def judge(line: Mapping[str, Any]) -> str:
    """Return fits, retries, oom or error.

    >>> judge({"status": "ok", "retries_by_step": "1 2 2 2 2 2"})
    'fits'
    >>> judge({"status": "ok", "retries_by_step": "0 0 0 1 2 3"})
    'retries'
    >>> judge({"status": "oom", "retries_by_step": "0"})
    'oom'
    """
    if line["status"] != "ok":
        return str(line["status"])
    counts = [int(count) for count in str(line["retries_by_step"]).split()]
    return "fits" if counts[-1] == counts[WARM_UP_STEPS] else "retries"


def run_plan(runner: Runner, plan: Sequence[Mapping[str, str]], out: Path) -> None:
    """Run both limits of every line; the CSV is complete after each run."""
    rows = {row.name: row for row in choose(",".join(line["row_id"] for line in plan), ())}
    runner.prepare(tuple(rows.values()))
    num_right = num_run = 0
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = open_writer(file, COLUMNS)
        for planned in plan:
            for expected in ("fits", "fails"):
                limit = int(planned[f"limit_bytes_{expected}"])
                row = rows[planned["row_id"]]
                line = runner.run(row, cap_bytes=limit, num_steps=NUM_STEPS)
                found = judge(line)
                right = found == "fits" if expected == "fits" else found in {"oom", "retries"}
                num_right, num_run = num_right + right, num_run + 1
                line |= {
                    "limit_bytes": limit,
                    "expected": expected,
                    "found": found,
                    "as_predicted": int(right),
                }
                writer.writerow(line)
                file.flush()
                say(
                    f"{row.name:24} limit {limit / GIB:7.3f} GiB, expected {expected:5}:"
                    f" {found:8}{'' if right else 'NOT AS PREDICTED '}"
                    f" peak {line['peak_allocated_gib']:>7} reserved"
                    f" {line['peak_reserved_gib']:>7} retries [{line['retries_by_step']}]"
                    f" {line['row_s']:>5} s  {str(line['message'])[:100]}"
                )
    say(f"{num_right} of {num_run} as predicted: {out}")


def main() -> None:
    """Read the command line and run the plan."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--out", type=Path, default=Path("memory_caps.csv"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--timeout-s", type=float, default=60, help="end a row after this")
    options = parser.parse_args()
    with options.plan.open(encoding="utf-8") as file:
        plan = list(csv.DictReader(file))
    set_environment(options.device)
    run_plan(Runner(options.device, timeout_s=options.timeout_s), plan, options.out)


if __name__ == "__main__":
    main()
