"""Writes the files of a study folder, from its Optuna storage alone."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import StoreError
from autotune.export.record import build_record
from autotune.export.trials_csv import trials_table
from autotune.study.view import StudyView

_ELSEWHERE = "name another folder with `autotune export --folder`"


def write_study_files(study: StudyView, folder: Path) -> Mapping[str, Any] | None:
    """Write `trials.csv`, and `ds_config.json` and `record.json` once something was confirmed.

    Returns:
        The record, or None if nothing was confirmed.

    Raises:
        StoreError: the folder or a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise StoreError(f"{folder}: is a file, where a folder is needed; {_ELSEWHERE}") from error
    except OSError as error:
        raise StoreError(f"{folder}: cannot be created: {error.strerror}; {_ELSEWHERE}") from error
    _replace(folder / "trials.csv", trials_table(study).to_csv(index=False))
    if study.exported is None:
        return None
    record = build_record(study).to_json()
    _replace(folder / "ds_config.json", _as_json(record["ds_config"]))
    _replace(folder / "record.json", _as_json(record))
    return record


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise StoreError(f"{path}: cannot be written: {error.strerror}; {_ELSEWHERE}") from error
