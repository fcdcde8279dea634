"""`autotune export`."""

import json
from pathlib import Path
from typing import Annotated

import typer


def export(
    study: Annotated[str, typer.Argument(help="Name of the study.")],
    storage: Annotated[
        str | None,
        typer.Option(help="Optuna storage URL. [default: SQLite in studies/NAME/]"),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where to write. [default: studies/NAME]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record.")] = False,
) -> None:
    """Write a study's ds_config.json, record.json and trials.csv again, from its storage alone."""
    from autotune.errors import ExportError, StoreError
    from autotune.export import write_study_files
    from autotune.report.summary import summarize
    from autotune.study.confirmation import is_complete
    from autotune.study.folder import STUDY_DB
    from autotune.study.store import StoredStudy
    from autotune.study.view import StudyView

    home = Path("studies") / study
    if storage is None and not (home / STUDY_DB).exists():
        raise StoreError(f"study {study}: no {home / STUDY_DB}; name its storage with --storage")
    stored = StoredStudy(study, storage or f"sqlite:///{home / STUDY_DB}", create=False)
    view = StudyView.of(stored)
    target = folder or home
    record = write_study_files(view, target)
    if record is None and view.records and not any(map(is_complete, view.records)):
        # Nothing fits: resuming the study does not change that.
        if as_json:
            print(json.dumps(record))
        else:
            summarize(view, target, record)
        raise typer.Exit(1)
    if record is None:
        raise ExportError(
            f"study {study}: no trial was confirmed yet, so only trials.csv was written; continue "
            "with `autotune run --resume`"
        )
    if as_json:
        print(json.dumps(record, indent=2))
    else:
        summarize(view, target, record)
