"""`autotune dashboard`."""

from pathlib import Path
from typing import Annotated

import typer


def dashboard(
    study: Annotated[str, typer.Argument(help="Name of the study.")],
    storage: Annotated[
        str | None,
        typer.Option(help="Optuna storage URL. [default: SQLite in studies/NAME/]"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8080,
) -> None:
    """Open Optuna's dashboard on a study. Ends with Ctrl-C."""
    from autotune.errors import StoreError
    from autotune.study.dashboard import serve_dashboard
    from autotune.study.folder import STUDY_DB

    home = Path("studies") / study
    if storage is None and not (home / STUDY_DB).exists():
        raise StoreError(f"study {study}: no {home / STUDY_DB}; name its storage with --storage")
    serve_dashboard(study, storage or f"sqlite:///{home / STUDY_DB}", host=host, port=port)
