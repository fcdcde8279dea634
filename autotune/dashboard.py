"""Opens optuna-dashboard on a study."""

import importlib.util
import os
import sys

from autotune.errors import StoreError
from autotune.search.sampler import StoredStudy


def serve_dashboard(study: str, storage_url: str, *, host: str, port: int) -> None:
    """Replace this process by optuna-dashboard, opened on a storage.

    Raises:
        StoreError: no such study, or optuna-dashboard is not installed.
    """
    StoredStudy.check(study, storage_url, exists=True)
    if importlib.util.find_spec("optuna_dashboard") is None:
        raise StoreError(
            "optuna-dashboard is not installed; install the extra: pip install "
            "'autotune[dashboard]'"
        )
    print(f"study {study}: http://{host}:{port}/dashboard/", file=sys.stderr, flush=True)  # noqa: T201
    command = [sys.executable, "-m", "optuna_dashboard"]
    arguments = [storage_url, "--host", host, "--port", str(port)]
    os.execv(sys.executable, [*command, *arguments])
