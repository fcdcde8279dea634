"""`autotune dashboard`."""

import errno
import sys
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
    from autotune.study.folder import STUDY_DB
    from autotune.study.store import StoredStudy

    home = Path("studies") / study
    if storage is None and not (home / STUDY_DB).exists():
        raise StoreError(f"study {study}: no {home / STUDY_DB}; name its storage with --storage")
    storage_url = storage or f"sqlite:///{home / STUDY_DB}"
    StoredStudy.check(study, storage_url, exists=True)
    try:
        from optuna_dashboard import run_server
    except ImportError as error:
        raise StoreError(
            "optuna-dashboard is not installed; install the extra: pip install "
            "'autotune[dashboard]'"
        ) from error
    print(f"study {study}: http://{host}:{port}/dashboard/", file=sys.stderr, flush=True)
    try:
        run_server(storage_url, host=host, port=port)
    except OSError as error:
        taken = error.errno in {errno.EADDRINUSE, errno.EACCES}
        where = f"--port {port}" if taken else f"--host {host}"
        raise StoreError(f"{where}: {error}; choose another one") from error
