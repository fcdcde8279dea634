"""Ray."""

import os
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from autotune.doctor.check import Check, fail, ok, warn
from autotune.pool import machine
from autotune.pool.local_ray import ray_cluster

_SESSIONS = Path("/tmp/ray")
"""Where Ray puts the logs of each cluster."""
_MANY_SESSIONS = 100


def start_ray() -> None:
    """Start a cluster on this machine as a study would, and end it.

    Raises:
        Exception: whatever Ray raises.
    """
    with ray_cluster(None, num_cpus=1):
        pass


def check_ray(start: Callable[[], None] = start_ray) -> Check:
    """A local cluster starts and ends."""
    began = time.monotonic()
    try:
        start()
    except Exception as error:  # noqa: BLE001  Ray raises many types; each is reported
        reason = " ".join(str(error).split())[:300]
        return fail(
            "Ray",
            f"{version('ray')} does not start: {type(error).__name__}: {reason}",
            "see /tmp/ray/session_latest/logs, or name a running cluster with --ray-address",
        )
    return ok("Ray", f"{version('ray')} starts and ends, {time.monotonic() - began:.0f} s")


def check_leftovers(pids: tuple[int, ...]) -> Check:
    """No other Ray uses this machine's CPUs, memory and devices.

    Args:
        pids: those of the node managers that run here.
    """
    if not pids:
        return ok("other Ray", "none runs here")
    return warn(
        "other Ray",
        f"{len(pids)} node managers run here (processes {', '.join(map(str, pids))})",
        "if they are left over from your runs: `ray stop`; else see `ray status` for held devices",
    )


def check_sessions(folder: Path = _SESSIONS) -> Check:
    """Logs of ended clusters do not fill the disk."""
    sessions = [path for path in folder.glob("session_*") if not path.is_symlink()]
    found = f"{len(sessions)} in {folder}"
    if len(sessions) <= _MANY_SESSIONS:
        return ok("Ray sessions", found)
    return warn("Ray sessions", found, f"while no Ray runs here: rm -r {folder}/session_*")


def check_cluster() -> Iterator[Check]:
    """Check Ray; other clusters are looked for before one is started."""
    yield check_leftovers(machine.ray_processes())
    yield check_sessions()
    yield check_ray()


def check_address() -> Iterator[Check]:
    """RAY_ADDRESS, which Ray's tools follow and `autotune run` does not."""
    address = os.environ.get("RAY_ADDRESS")
    if address:
        yield warn(
            "RAY_ADDRESS",
            f"is {address}; `autotune run` ignores it and starts a cluster",
            f"to use it: --ray-address {address}",
        )
