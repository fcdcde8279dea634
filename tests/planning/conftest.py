"""A ds_config and a small space, as files."""

import json
from pathlib import Path

import pytest

CONFIG = {
    "bf16": {"enabled": True},
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "zero_optimization": {"stage": 3},
}
SMALL_SPACE = """
parameters:
  zero_optimization.stage: {choices: [1, 3]}
  train_micro_batch_size_per_gpu: {choices: [1, 2, 4, 8]}
  model.activation_checkpointing: {choices: [false, true]}
  zero_optimization.reduce_bucket_size: {low: 100_000, high: 1_000_000_000, log: true}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps(CONFIG))
    return file


@pytest.fixture
def space(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL_SPACE)
    return file
