"""A record of a study of the fake evaluator, as `autotune run` writes it."""

import json
from pathlib import Path
from typing import Any

from autotune.search.progress import Silent
from autotune.tuning import run_study
from tests.asked import tune_request
from tests.search.setting import FEW_POINTS, setting, small_space


def written_study(folder: Path) -> dict[str, Any]:
    """Write a study's files, and return its record."""
    here = setting(folder, noise=0.001, space=small_space(FEW_POINTS))
    request = tune_request(model="tiny", gpus=2, trials=12, confirm_rounds=3)
    run_study(here.open(), here.evaluator, folder, request=request, progress=Silent())
    record: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    # The fake's environment is empty.
    record["environment"] |= {
        "torch": "2.13.0",
        "deepspeed": "0.19.8",
        "transformers": "5.24.0",
        "device_kind": "cpu",
        "device_model": "cpu",
        "devices": ["here cpu cpu", "here cpu cpu"],
        "driver": None,
    }
    return record


def write(path: Path, value: Any) -> Path:
    """Write JSON, and return where."""
    path.write_text(json.dumps(value), encoding="utf-8")
    return path
