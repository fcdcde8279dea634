"""Rows under limits of the allocator around what the model says they need."""

from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.memory_rows.lines import describe, gib, open_writer, predict
from tests.benchmarks.memory_rows.models import MODELS
from tests.benchmarks.memory_rows.progress import say
from tests.benchmarks.memory_rows.runner import Runner
from tests.benchmarks.memory_rows.spec import Spec

CAP_FACTORS = (1.04, 0.96)
CAPPED = (
    "fp16-z2-n8",
    "acc32-z1-n8",
    "tied-z2-n8",
    "gpt2l-z3-n8",
    "moe-z2-n8",
    "eager-z2-n8",
)
"""Default rows of `--caps`: large enough for 4 % to be more than noise."""


_CAP_COLUMNS = (
    "row_id",
    "factor",
    "predicted_gib",
    "outside_gib",
    "ceiling_gib",
    "allocator_cap_gib",
    "expected",
    "status",
    "as_predicted",
    "peak_allocated_gib",
    "peak_reserved_gib",
    "alloc_retries",
    "row_s",
    "message",
)


def run_caps(runner: Runner, rows: Sequence[Spec], out: Path) -> None:
    """Run rows under limits around what the model says they need."""
    num_right = num_run = 0
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = open_writer(file, _CAP_COLUMNS)
        for row in rows:
            job = describe(row, MODELS[row.model])
            try:
                device = predict(job, runner.gpu_type).device
            except Exception as error:  # noqa: BLE001  the model may be absent, or refuse a row
                say(f"{row.name}: not predicted: {type(error).__name__}: {error}")
                continue
            needed = device.peak_allocated_bytes + device.outside_bytes
            for factor in CAP_FACTORS:
                ceiling = round(needed * factor)
                cap = ceiling - device.outside_bytes
                line = runner.run(row, cap_bytes=cap)
                expected = "ok" if factor > 1 else "oom"
                right = line["status"] == expected
                num_right, num_run = num_right + right, num_run + 1
                found = {key: line[key] for key in _CAP_COLUMNS if key in line} | {
                    "factor": factor,
                    "predicted_gib": gib(device.peak_allocated_bytes),
                    "outside_gib": gib(device.outside_bytes),
                    "ceiling_gib": gib(ceiling),
                    "allocator_cap_gib": gib(cap),
                    "expected": expected,
                    "as_predicted": int(right),
                }
                writer.writerow(found)
                file.flush()
                say(
                    f"cap {factor:.2f} {row.name:24} predicted {found['predicted_gib']:>8}"
                    f" allocator's limit {found['allocator_cap_gib']:>8}"
                    f" peak {line['peak_allocated_gib']:>8} GiB, {line['alloc_retries'] or 0}"
                    f" retries: {line['status']:6} {'as predicted' if right else 'NOT predicted'}"
                    f"  {line['row_s']:>5} s  {str(line['message'])[:120]}"
                )
    say(f"{num_right} of {num_run} verdicts right under real limits: {out}")
