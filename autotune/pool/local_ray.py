"""Starting or joining a Ray cluster, and making sure that a started one ends with the driver."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from typing import IO

import ray

from autotune.errors import HardwareError
from autotune.pool.watcher import CLOSING, MARK_VARIABLE, STARTED


@contextlib.contextmanager
def ray_cluster(address: str | None, *, num_cpus: int) -> Iterator[None]:
    """Join the cluster at `address`, or run a local one for as long as the context lasts.

    Args:
        address: as `ray.init` takes it; None starts a cluster on this machine.
        num_cpus: CPUs that a started cluster offers.

    Raises:
        HardwareError: no cluster answers at `address`.
    """
    # Ray would ask a server of its makers; a tuner has no reason to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is not None:
        with _joined(address):
            yield
        return
    # Nobody reads such events without a dashboard, and a driver whose cluster has died before it
    # (of a SIGTERM to the whole process group) would try for 5 s to send the last ones.
    os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
    with _watched() as watcher:
        try:
            with _undisturbed():
                ray.init(
                    # Else Ray would join a cluster that somebody has left running here.
                    address="local",
                    num_cpus=num_cpus,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
            watcher.write(STARTED)
            yield
        finally:
            with contextlib.suppress(BrokenPipeError):  # somebody has killed the watcher
                watcher.write(CLOSING)
            ray.shutdown()


@contextlib.contextmanager
def _joined(address: str) -> Iterator[None]:
    try:
        try:
            with _undisturbed():
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise HardwareError(
                f"--ray-address {address}: no Ray cluster answers ({_first_line(error)}); start "
                "one with `ray start --head`, or leave the option out to use this machine"
            ) from error
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Put Ctrl-C off while Ray starts, and give the caller's handler of SIGTERM back afterwards.

    An exception in the midst of `ray.init` leaves threads that crash the process at its end; and
    Ray takes SIGTERM.

    Raises:
        KeyboardInterrupt: somebody pressed Ctrl-C meanwhile; Ray is up.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    interrupts, terminates = map(signal.getsignal, (signal.SIGINT, signal.SIGTERM))
    if callable(interrupts):
        signal.signal(signal.SIGINT, lambda signum, _: pressed.append(signum))
    try:
        yield
    finally:
        if callable(interrupts):
            signal.signal(signal.SIGINT, interrupts)
        if callable(terminates):
            signal.signal(signal.SIGTERM, terminates)
    if pressed:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _watched() -> Iterator[IO[bytes]]:
    """Mark this process's descendants, and have a watcher end those that outlive it.

    Gives the pipe to the watcher.
    """
    mark = uuid.uuid4().hex
    watcher = subprocess.Popen(
        [sys.executable, "-m", "autotune.pool.watcher", mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    )
    assert watcher.stdin is not None
    os.environ[MARK_VARIABLE] = mark
    try:
        yield watcher.stdin
    finally:
        del os.environ[MARK_VARIABLE]
        watcher.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            watcher.wait(timeout=15)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
