"""The measured rows of tests/data, as jobs with their measurements."""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autotune.job.ceiling import GIB
from autotune.job.device import find_device
from autotune.job.model_shape import ModelShape
from autotune.job.workload import Workload
from autotune.predict.memory.estimate import MemoryEstimate
from autotune.predict.memory.predict import CONTEXT_BYTES, Surroundings, predict_memory
from autotune.predict.training_job import ModelSettings, Training, read_training
from tests.benchmarks.memory_rows.lines import read_job

DATA = Path(__file__).parents[1] / "data"
FILES = ("h200_memory.csv", "h200_two_gpus.csv")
MORE = "h200_memory_more.csv"
SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)
"""Columns of a model's dimensions."""
H200 = find_device("h200")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run on an H200."""

    name: str
    training: Training
    measured: Mapping[str, str]

    @property
    def emulated(self) -> bool:
        return self.measured.get("emulated", "") == "1" or (
            self.measured.get("evaluator") == "emulated"
        )

    @property
    def completed(self) -> bool:
        return self.measured.get("status", "ok") == "ok"

    def gib(self, column: str) -> float | None:
        """Return a measured size; None where the run did not get so far."""
        text = self.measured[column]
        return float(text) if text else None

    @property
    def outside_bytes(self) -> float:
        """What the run held outside the allocator."""
        if self.emulated or self.training.world_size == 1:
            return CONTEXT_BYTES
        driver, reserved = self.gib("driver_used_gib"), self.gib("peak_reserved_gib")
        assert driver is not None
        assert reserved is not None
        return (driver - reserved) * GIB

    def error(self, predicted_bytes: float, column: str) -> float:
        """Return the prediction's relative error; negative is too low."""
        measured = self.gib(column)
        assert measured is not None
        return predicted_bytes / GIB / measured - 1


@cache
def rows() -> tuple[Row, ...]:
    """Return every row of both files."""
    found = []
    for name in FILES:
        with (DATA / name).open(encoding="utf-8") as lines:
            found += [_row(line) for line in csv.DictReader(lines)]
    return tuple(found)


@cache
def more_rows() -> tuple[Row, ...]:
    """Return the rows that were measured before the model knew what they are about."""
    with (DATA / MORE).open(encoding="utf-8") as lines:
        return tuple(
            Row(name=line["row_id"], training=read_job(line), measured=line | {"emulated": "1"})
            for line in csv.DictReader(lines)
        )


@cache
def estimate(name: str) -> MemoryEstimate:
    """Return the prediction for a row, replayed once for all tests."""
    row = next(row for row in (*rows(), *more_rows()) if row.name == name)
    # Every row is of rank 0; of real ranks it was the first's numbers that were kept.
    surroundings = Surroundings(device=H200, emulated=row.emulated, rank=0)
    return predict_memory(row.training, surroundings)


def _row(line: dict[str, str]) -> Row:
    shape = _shape(line)
    ranks, accumulation = int(line["world_size"]), int(line.get("grad_accum") or 1)
    workload = Workload(
        model=shape,
        seq_len=int(line["seq_len"]),
        global_batch_size=ranks * accumulation * int(line["micro_batch"]),
        world_size=ranks,
        precision="bf16",
        optimizer={"type": "AdamW"},
        gradient_clipping=1.0,
    )
    settings = ModelSettings(activation_checkpointing=line["activation_checkpointing"] == "1")
    return Row(
        name=line.get("row_id") or f"pair{line['pair']}-{line['evaluator']}",
        training=read_training(_ds_config(line, accumulation), workload, settings),
        measured=line,
    )


def _ds_config(line: dict[str, str], accumulation: int) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": int(line["zero_stage"])}
    zero |= json.loads(line["zero_extra"] or "{}")
    if line["offload"] != "none":
        zero["offload_optimizer"] = {"device": "cpu"}
    if "param" in line["offload"]:
        zero["offload_param"] = {"device": "cpu"}
    return {
        "train_micro_batch_size_per_gpu": int(line["micro_batch"]),
        "gradient_accumulation_steps": accumulation,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": zero,
    }


def _shape(line: dict[str, str]) -> ModelShape:
    return ModelShape(
        name=line["shape"],
        model_type="llama",
        max_position_embeddings=0,
        tie_word_embeddings=False,
        hf_config={},
        unmodelled=(),
        **{name: int(line[name]) for name in SIZES},
    )
