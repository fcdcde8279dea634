"""Opens optuna-dashboard on a study."""

import errno
import sys

from autotune.errors import StoreError
from autotune.study.store import StoredStudy


def serve_dashboard(study: str, storage_url: str, *, host: str, port: int) -> None:
    """Serve optuna-dashboard on a storage until interrupted.

    Raises:
        StoreError: no such study, the port is taken, or optuna-dashboard is not installed.
    """
    StoredStudy.check(study, storage_url, exists=True)
    try:
        from optuna_dashboard import run_server
    except ImportError as error:
        raise StoreError(
            "optuna-dashboard is not installed; install the extra: pip install "
            "'autotune[dashboard]'"
        ) from error
    print(f"study {study}: http://{host}:{port}/dashboard/", file=sys.stderr, flush=True)  # noqa: T201
    try:
        run_server(storage_url, host=host, port=port)
    except OSError as error:
        taken = error.errno in {errno.EADDRINUSE, errno.EACCES}
        where = f"--port {port}" if taken else f"--host {host}"
        raise StoreError(f"{where}: {error}; choose another one") from error
