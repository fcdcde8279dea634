"""Benchmark: how long a prediction takes.

Run by hand on an idle machine: ``python -m tests.benchmarks.memory_speed``. Prints seconds per
replay over the measured rows, recording the program included, and for screening 10,000 proposals
of a space as `autotune plan --space` does.
"""

import tempfile
import time
from pathlib import Path

from autotune.planning import plan_space
from autotune.predict.memory.predict import Surroundings, predict_memory
from tests.asked import plan_request
from tests.predict.rows import H200, rows

REPEATS = 3
SPACE = """
parameters:
  zero_optimization.stage: {choices: [1, 2, 3]}
  zero_optimization.offload_optimizer.device: {choices: [none, cpu]}
  train_micro_batch_size_per_gpu: {choices: [1, 2, 4, 8, 16, 32]}
  model.activation_checkpointing: {choices: [false, true]}
  zero_optimization.overlap_comm: {choices: [false, true]}
  zero_optimization.reduce_bucket_size:
    choices: [1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000, 100_000_000,
              200_000_000, 500_000_000, 1_000_000_000]
  zero_optimization.stage3_prefetch_bucket_size:
    choices: [1_000_000, 10_000_000, 50_000_000, 100_000_000, 200_000_000, 500_000_000]
    when: {zero_optimization.stage: [3]}
  zero_optimization.stage3_max_live_parameters:
    choices: [100_000_000, 500_000_000, 1_000_000_000, 2_000_000_000, 3_000_000_000]
    when: {zero_optimization.stage: [3]}
"""


def replay_seconds() -> list[tuple[float, str]]:
    """Return the best of a few replays of each row."""
    found = []
    for row in rows():
        best = float("inf")
        for _ in range(REPEATS):
            start = time.perf_counter()
            predict_memory(row.training, Surroundings(device=H200))
            best = min(best, time.perf_counter() - start)
        found.append((best, f"{row.name}, {row.training.model.name}"))
    return sorted(found)


def plan_seconds(model: str) -> tuple[float, int]:
    """Return the seconds of a plan, and its number of proposals."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "many.yaml"
        file.write_text(SPACE, encoding="utf-8")
        request = plan_request(model=model, gpus=8, gpu_type="h100-80gb", space=str(file))
        start = time.perf_counter()
        result = plan_space(request)
        seconds = time.perf_counter() - start
    return seconds, sum(line.num_proposals for line in result.lines)


def main() -> None:
    """Print the times."""
    times = replay_seconds()
    mean = sum(seconds for seconds, _ in times) / len(times)
    print(f"replay: mean {1e3 * mean:.0f} ms, median {1e3 * times[len(times) // 2][0]:.0f} ms")
    for seconds, name in times[-4:]:
        print(f"  slowest: {1e3 * seconds:.0f} ms, {name}")
    for model in ("7b", "70b"):
        seconds, number = plan_seconds(model)
        print(f"plan of {number:,} proposals of {model}: {seconds:.1f} s")


if __name__ == "__main__":
    main()
