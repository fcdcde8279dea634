"""The number we print against the number they get.

``python -m tests.benchmarks.plain_run studies/NAME [STEPS] [--trials N ...]`` trains an export in a
plain DeepSpeed script (`tests/export/plain_script.py`, which knows nothing of autotune) and prints
its tokens/s and peak memory beside the record's. With `--trials` it does the same with the configs
of these trials of the study, such as its baselines. ``--output FILE`` keeps what the script gave.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from autotune.study.candidate import TrialRecord
from tests.benchmarks.rank_agreement import read_study

PLAIN_SCRIPT = Path(__file__).parents[1] / "export" / "plain_script.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What autotune says of a config."""

    name: str
    ds_config: Mapping[str, Any]
    record: Mapping[str, Any]
    """The study's, with the config's own model settings."""
    tokens_per_s: float
    low: float
    high: float
    peak_bytes: int


def reported_by_export(folder: Path) -> Reported:
    """Return what the record says."""
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    speed = record["tokens_per_s"]
    return Reported(
        name="export",
        ds_config=json.loads((folder / "ds_config.json").read_text(encoding="utf-8")),
        record=record,
        tokens_per_s=speed["value"],
        low=speed["low"],
        high=speed["high"] or float("inf"),
        peak_bytes=record["memory"]["peak_bytes"],
    )


def reported_by_trial(trial: TrialRecord, record: Mapping[str, Any]) -> Reported:
    """Return what the search measured of a trial."""
    assert trial.outcome is not None
    speed = trial.outcome.tokens_per_s
    return Reported(
        name=f"trial {trial.number}, {trial.candidate.source}",
        ds_config=trial.candidate.ds_config,
        record={**record, "model_settings": dict(trial.candidate.model_settings)},
        tokens_per_s=speed.mean,
        low=speed.low,
        high=speed.high,
        peak_bytes=trial.outcome.measured.peak_bytes,
    )


def train(reported: Reported, num_steps: int) -> tuple[float, int]:
    """Return tokens/s and peak bytes that the plain script gets."""
    device = "--cpu" if reported.record["environment"]["device_kind"] == "cpu" else "--cuda"
    with TemporaryDirectory() as folder:
        for name, content in (("ds_config", reported.ds_config), ("record", reported.record)):
            (Path(folder) / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(PLAIN_SCRIPT), folder, str(num_steps), device],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    ranks = json.loads(done.stdout.splitlines()[-1])["ranks"]
    slowest = [max(steps) for steps in zip(*(rank["step_s"] for rank in ranks), strict=True)]
    kept = slowest[len(slowest) // 2 :]  # the first half is warm-up
    workload = reported.record["workload"]
    tokens_per_s = workload["global_batch_size"] * workload["seq_len"] / fmean(kept)
    return tokens_per_s, max(rank["peak_bytes"] for rank in ranks)


def compare(reported: Reported, num_steps: int) -> dict[str, Any]:
    """Train, print, and return what came of it."""
    tokens_per_s, peak_bytes = train(reported, num_steps)
    print(f"{reported.name:32}{'autotune':>14}{'plain script':>14}{'difference':>12}")
    for name, theirs, ours in (
        ("tokens/s", reported.tokens_per_s, tokens_per_s),
        ("peak MiB", reported.peak_bytes / 2**20, peak_bytes / 2**20),
    ):
        print(f"{name:32}{theirs:14,.1f}{ours:14,.1f}{ours / theirs - 1:+12.1%}")
    within = "within" if reported.low <= tokens_per_s <= reported.high else "outside"
    print(f"{within} autotune's interval, {reported.low:,.0f} to {reported.high:,.0f}", flush=True)
    return {
        "config": reported.name,
        "told_tokens_per_s": [reported.tokens_per_s, reported.low, reported.high],
        "plain_tokens_per_s": tokens_per_s,
        "told_peak_bytes": reported.peak_bytes,
        "plain_peak_bytes": peak_bytes,
    }


def main() -> None:
    """Run and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int, nargs="?", default=12)
    parser.add_argument("--trials", type=int, nargs="*", default=[])
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    export = reported_by_export(given.folder)
    configs = [export]
    if given.trials:
        records = read_study(given.folder).records
        configs += [reported_by_trial(records[number], export.record) for number in given.trials]
    for reported in configs:
        found = compare(reported, given.steps)
        if given.output is not None:
            with given.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
