"""The study folder's files, every one rebuilt from the Optuna storage alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.export.ds_config import exported_ds_config
from autotune.export.record import build_record
from autotune.export.trials_csv import trials_table
from autotune.study import StudyView


def write_study_files(study: StudyView, folder: Path) -> Mapping[str, Any] | None:
    """Write `trials.csv`, and `ds_config.json` and `record.json` once something was confirmed.

    Returns:
        The record, or None if nothing was confirmed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / "trials.csv", trials_table(study).to_csv(index=False))
    if study.exported is None:
        return None
    record = build_record(study)
    _replace(folder / "ds_config.json", _as_json(exported_ds_config(study)))
    _replace(folder / "record.json", _as_json(record))
    return record


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
