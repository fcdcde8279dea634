"""The number we print against the number they get.

``python tests/benchmarks/plain_run.py studies/NAME [STEPS]`` trains an export in a plain DeepSpeed
script (`tests/export/plain_script.py`, which knows nothing of autotune) and prints its tokens/s and
peak memory beside the record's.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean

PLAIN_SCRIPT = Path(__file__).parents[1] / "export" / "plain_script.py"


def main(folder: Path, num_steps: int) -> None:
    """Run and compare."""
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    device = "--cpu" if record["environment"]["device_kind"] == "cpu" else "--cuda"
    done = subprocess.run(
        [sys.executable, str(PLAIN_SCRIPT), str(folder), str(num_steps), device],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    ranks = json.loads(done.stdout.splitlines()[-1])["ranks"]
    slowest = [max(steps) for steps in zip(*(rank["step_s"] for rank in ranks), strict=True)]
    kept = slowest[len(slowest) // 2 :]  # the first half is warm-up
    workload = record["workload"]
    tokens_per_s = workload["global_batch_size"] * workload["seq_len"] / fmean(kept)
    told = record["tokens_per_s"]
    peak = max(rank["peak_bytes"] for rank in ranks)
    told_peak = record["memory"]["peak_bytes"]
    print(f"{'':12}{'record':>14}{'plain script':>14}{'difference':>12}")
    for name, theirs, ours in (
        ("tokens/s", told["value"], tokens_per_s),
        ("peak MiB", told_peak / 2**20, peak / 2**20),
    ):
        print(f"{name:12}{theirs:14,.1f}{ours:14,.1f}{ours / theirs - 1:+12.1%}")
    high = told["high"] or float("inf")
    within = "within" if told["low"] <= tokens_per_s <= high else "outside"
    print(f"{within} the record's interval, {told['low']:,.0f} to {high:,.0f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 12)
