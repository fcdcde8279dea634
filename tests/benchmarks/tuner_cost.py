"""Benchmark: what the tuner itself costs per trial, and what the preloaded parent saves.

Run by hand on an idle machine: ``python tests/benchmarks/tuner_cost.py``. Prints two numbers:

- the tuner's own seconds per trial: from ask to tell, less the time from the first rank's fork to
  the last rank's exit;
- how many times faster a trial is from the preloaded parent than the same trial in fresh Python
  processes, start to outcome. Both kinds run in turn, so that a drifting machine cancels out.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from autotune.ds_config.build import build_ds_config
from autotune.evaluate import TrialRequest
from autotune.evaluate.measured import MeasuredEvaluator
from autotune.job.model_shape import load_model_shape
from autotune.job.workload import Workload
from autotune.pool.pool import Pool, PoolRequest
from autotune.search.budget import Budget
from autotune.search.loop import Search
from autotune.space import load_space
from autotune.study.candidate import Candidate
from autotune.study.outcome import Outcome, Phase, Status
from autotune.study.store import StoredStudy
from tests.job.workloads import resolve_workload

NUM_TRIALS = 30
NUM_PAIRS = 7
CEILING_BYTES = 1 << 30


class _Stopwatch:
    """Takes the time between trials: a `Progress` that the search tells."""

    def __init__(self) -> None:
        self.own_s: list[float] = []
        self._asked_at = time.perf_counter()

    def launched(self, label: str, candidate: Candidate) -> None:
        """Nothing to time yet."""

    def marked(self, label: str, rank: int, phase: Phase, where: str) -> None:
        """Nothing to time."""

    def finished(self, label: str, candidate: Candidate, outcome: Outcome) -> None:
        """From the last trial's end to this one's is this trial, ask to tell."""
        now = time.perf_counter()
        self.own_s.append(now - self._asked_at - outcome.ranks_s)
        self._asked_at = now

    def noted(self, text: str) -> None:
        """Nothing to time."""

    def remaining(self, *, num_launched: int, left_s: float) -> None:
        """Nothing to time."""


def main() -> None:
    """Measure and print both."""
    workload = resolve_workload(load_model_shape("tiny"), gpus=2, base={}, device_kind="cpu")
    request = PoolRequest(world_size=2, device_kind="cpu", model_type="llama")
    with tempfile.TemporaryDirectory() as folder, Pool(request) as pool:
        evaluator = MeasuredEvaluator(
            pool=pool,
            workload=workload,
            ceiling_bytes=CEILING_BYTES,
            seed=0,
            study_folder=Path(folder),
        )
        own_s = _own_cost(evaluator, workload, Path(folder))
        print(
            f"the tuner's own cost per trial: median {statistics.median(own_s):.3f} s, "
            f"worst {max(own_s):.3f} s, {len(own_s)} trials"
        )
        ratios = _preload_gain(evaluator, workload)
        print(
            f"fresh processes over preloaded parent: median {statistics.median(ratios):.1f} times, "
            f"{min(ratios):.1f} to {max(ratios):.1f}, {len(ratios)} pairs"
        )


def _own_cost(evaluator: MeasuredEvaluator, workload: Workload, folder: Path) -> list[float]:
    watch = _Stopwatch()
    Search(
        study=StoredStudy("cost", f"sqlite:///{folder / 'study.db'}", create=True),
        evaluator=evaluator,
        space=load_space("zero").bind(workload),
        workload=workload,
        base={},
        ceiling_bytes=CEILING_BYTES,
        seed=1,
        budget=Budget(max_trials=NUM_TRIALS + 1),
        progress=watch,
    ).run()
    return watch.own_s[1:]  # the first waits for the parents to load


def _preload_gain(evaluator: MeasuredEvaluator, workload: Workload) -> list[float]:
    ratios = []
    for pair in range(NUM_PAIRS):
        values = {"zero_optimization.stage": 2, "zero_optimization.reduce_bucket_size": 1_000_000}
        trial = TrialRequest(
            number=pair,
            label=f"pair-{pair}",
            ds_config=build_ds_config({}, workload, values),
            model_settings={},
        )
        began = time.perf_counter()
        outcome = evaluator.evaluate(trial, lambda *_: None)
        preloaded_s = time.perf_counter() - began
        assert outcome.status is Status.COMPLETE, outcome.failure
        ratios.append(_fresh_s(evaluator, trial) / preloaded_s)
    return ratios


def _fresh_s(evaluator: MeasuredEvaluator, trial: TrialRequest) -> float:
    """Return the seconds of the same ranks, each in a Python process of its own."""
    spec = evaluator.terms.spec(trial).to_json()
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        began = time.perf_counter()
        processes = []
        for rank in range(2):
            place = {
                "rank": rank,
                "world_size": 2,
                "local_rank": rank,
                "local_world_size": 2,
                "master_addr": "127.0.0.1",
                "master_port": port,
                "visible_devices": "",
                "log_path": str(Path(folder) / f"rank-{rank}.log"),
            }
            code = (
                "import json, sys; from autotune.trial.rank import run_rank; "
                "sys.exit(run_rank(*json.load(sys.stdin), 1, program='trial'))"
            )
            process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
                text=True,
            )
            assert process.stdin is not None
            process.stdin.write(json.dumps([spec, place]))
            process.stdin.close()
            processes.append(process)
        codes = [process.wait() for process in processes]
        seconds = time.perf_counter() - began
        assert codes == [0, 0], codes
    return seconds


def _free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()
