"""How long `autotune gate` takes, beside `python -c 'import torch'` in the same run.

``python tests/benchmarks/gate_speed.py [ROUNDS]``: the two in turn, so that a busy machine slows
both; prints the medians and the median of the ratios. To reach: under 0.7 s, and at most half.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

CONFIG = {
    "train_batch_size": 256,
    "train_micro_batch_size_per_gpu": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": 5e8,
        "stage3_prefetch_bucket_size": 5e7,
    },
}
JOB = ("--model", "7b", "--gpus", "8", "--gpu-type", "h100-80gb", "--host-memory", "1000")


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "ds_config.json"
        config.write_text(json.dumps(CONFIG), encoding="utf-8")
        gate = [sys.executable, "-m", "autotune.cli.main", "gate", str(config)]
        commands = {
            "gate": gate,
            "gate with memory": [*gate, *JOB],
            "import torch": [sys.executable, "-c", "import torch"],
        }
        # As installed: byte code is written once and read ever after.
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env |= {"PYTHONPYCACHEPREFIX": folder}
        for command in commands.values():
            _took_s(command, env)
        times = [{name: _took_s(c, env) for name, c in commands.items()} for _ in range(rounds)]
    for name in commands:
        ratio = median(each[name] / each["import torch"] for each in times)
        seconds = median(each[name] for each in times)
        print(f"{name:<17} {seconds:.2f} s at the median of {rounds}, {ratio:.2f} x import torch")


def _took_s(command: list[str], env: dict[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    took_s = time.perf_counter() - began
    assert done.returncode in (0, 1), done.stderr
    return took_s


if __name__ == "__main__":
    main()
