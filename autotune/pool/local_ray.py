"""Starts or joins a Ray cluster, and makes sure that a started one ends with the driver."""

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
    # Disables Ray's usage report to its vendor.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is not None:
        with _joined(address):
            yield
        return
    # Without a dashboard such events are not read, and a driver whose cluster died first (of a
    # SIGTERM to the whole process group) would try for 5 s to send the last ones.
    os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
    with _watched() as watcher:
        try:
            with _undisturbed():
                ray.init(
                    # Else Ray would join a cluster that is already running here.
                    address="local",
                    num_cpus=num_cpus,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
            watcher.write(STARTED)
            yield
        finally:
            with contextlib.suppress(BrokenPipeError):  # the watcher was killed
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
    """Delay Ctrl-C while Ray starts, and restore the caller's handler of SIGTERM afterwards.

    An exception during `ray.init` leaves threads that crash the process at its end; and Ray
    replaces the handler of SIGTERM.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed meanwhile; Ray is up.
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
    """Mark this process's descendants, and start a watcher that ends those that outlive it.

    Yields the pipe to the watcher.
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
