"""The command line: which rows, on which device, and what to do with them."""

import argparse
import csv
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import memory_rows
from tests.benchmarks.memory_rows.caps import CAPPED, run_caps
from tests.benchmarks.memory_rows.lines import COLUMNS, open_writer
from tests.benchmarks.memory_rows.progress import say
from tests.benchmarks.memory_rows.rows import ROWS, choose
from tests.benchmarks.memory_rows.runner import Runner, set_environment
from tests.benchmarks.memory_rows.spec import Spec
from tests.benchmarks.memory_rows.table import print_table


def run_rows(runner: Runner, rows: Sequence[Spec], out: Path, budget_s: float) -> None:
    """Run rows one after the other; the CSV is complete after each."""
    start = time.monotonic()
    lines = []
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = open_writer(file, COLUMNS)
        for number, row in enumerate(rows, 1):
            elapsed = time.monotonic() - start - runner.waited_s
            if elapsed > budget_s:
                left = ", ".join(row.name for row in rows[number - 1 :])
                say(f"{elapsed:.0f} s are over; not run: {left}")
                break
            line = runner.run(row)
            lines.append(line)
            writer.writerow(line)
            file.flush()
            say(
                f"{number:3}/{len(rows)} {row.name:24} {line['status']:6}"
                f" init {line['init_allocated_gib']:>8} peak {line['peak_allocated_gib']:>8}"
                f" reserved {line['peak_reserved_gib']:>8} GiB  {line['row_s']:>5} s"
                f"  {line['message']}"
            )
    say(f"{len(lines)} rows in {time.monotonic() - start:.0f} s: {out}")
    print_table(lines, runner.gpu_type)


def main() -> None:
    """Read the command line and run a mode."""
    parser = argparse.ArgumentParser(description=(memory_rows.__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("memory_rows.csv"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", default="", help="rows to run, separated by commas")
    parser.add_argument("--caps", action="store_true", help="run rows under limits instead")
    parser.add_argument("--with-caps", action="store_true", help="the same, after the rows")
    parser.add_argument("--table", type=Path, help="print the table of this CSV; runs nothing")
    parser.add_argument("--list", action="store_true", help="print the rows; runs nothing")
    parser.add_argument("--budget-s", type=float, default=345, help="start no row after this")
    parser.add_argument("--timeout-s", type=float, default=60, help="end a row after this")
    parser.add_argument("--gpu-type", default="h200", help="the device that the model predicts")
    options = parser.parse_args()
    if options.table:
        with options.table.open(encoding="utf-8") as file:
            print_table(list(csv.DictReader(file)), options.gpu_type)
        return
    rows = choose(options.only, [row.name for row in ROWS])
    capped = choose(options.only if options.caps else "", CAPPED)
    if options.list:
        say("\n".join(f"{row.name:24}{row.topic}" for row in rows))
        return
    set_environment(options.device)
    runner = Runner(options.device, timeout_s=options.timeout_s, gpu_type=options.gpu_type)
    runs_rows, runs_caps = not options.caps, options.caps or options.with_caps
    runner.prepare((*(rows if runs_rows else ()), *(capped if runs_caps else ())))
    if runs_rows:
        run_rows(runner, rows, options.out, options.budget_s)
    if runs_caps:
        run_caps(runner, capped, options.out.with_suffix(".caps.csv"))


if __name__ == "__main__":
    main()
