"""Versions, hosts and devices of a study. Loads none of the packages."""

import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from autotune import __version__

THREADS_PER_RANK, THREADS_ORIGIN = "threads_per_rank", "threads_origin"
"""Keys of an environment: a rank's CPU threads, and the source of their number."""
_PACKAGES = ("torch", "deepspeed", "transformers", "optuna", "ray")


def describe_environment(
    devices: Sequence[str],
    *,
    device_kind: str,
    device_model: str,
    driver: str | None = None,
) -> dict[str, Any]:
    """Return versions and devices as JSON values.

    Args:
        devices: host and device of every slot.
        device_kind: cuda or cpu.
        device_model: the driver's name of the devices; `cpu` for CPU ranks.
        driver: its version.
    """
    return {
        "autotune": __version__,
        "autotune_commit": _commit(),
        "python": platform.python_version(),
        **{package: _version(package) for package in _PACKAGES},
        "platform": platform.platform(),
        "device_kind": device_kind,
        "device_model": device_model,
        "driver": driver,
        "devices": list(devices),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of an autotune that runs from its source tree, with `+` if changed."""
    source = Path(__file__).resolve().parent.parent
    if not (source / ".git").exists():
        return None
    command = ["git", "-C", str(source), "describe", "--always", "--dirty=+"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or None
