"""Finds the processes of a pool from outside: what a test kills, and what it must not find."""

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from autotune.pool.watcher import MARK_VARIABLE

_PARENT = "autotune.trial.parent"
_RANK_LOG = re.compile(r"-rank-(\d+)\.log$")


def marked_processes(mark: str) -> list[psutil.Process]:
    """Return every living process that carries a pool's mark."""
    return [p for p in _living() if _environment(p).get(MARK_VARIABLE) == mark]


def mark_of(pid: int) -> str | None:
    """Return the mark that the descendants of a driver carry, once it has started any."""
    driver = psutil.Process(pid)
    marks = {_environment(p).get(MARK_VARIABLE) for p in driver.children(recursive=True)}
    return next(filter(None, marks), None)


def parents(mark: str) -> list[psutil.Process]:
    """Return the preloaded parents."""
    return [p for p in marked_processes(mark) if _is_parent(p) and not _is_rank(p)]


def ranks(mark: str) -> dict[int, psutil.Process]:
    """Return the living ranks, by rank: forks of the preloaded parents that have a log."""
    found = {}
    for process in marked_processes(mark):
        number = _rank_of(process) if _is_parent(process) and _is_rank(process) else None
        if number is not None:
            found[number] = process
    return found


def forks(mark: str) -> list[psutil.Process]:
    """Return the living forks of the preloaded parents, whatever they have come to."""
    return [p for p in marked_processes(mark) if _is_parent(p) and _is_rank(p)]


def named(name: str, mark: str) -> list[psutil.Process]:
    """Return the living processes of a pool that run a program."""
    return [p for p in marked_processes(mark) if p.info["name"] == name]


def slot_folders(mark: str) -> list[Path]:
    """Return the folders of the slots that a driver's cluster has started."""
    return list(Path(tempfile.gettempdir()).glob(f"autotune-slot-{mark}-*"))


def lives(process: psutil.Process) -> bool:
    """Return whether a process that was found before still runs."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(holds: Callable[[], object], *, timeout_s: float, what: str) -> None:
    """Return when something holds; fail when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.3)


def wait_until_none(find: Callable[[], Sequence[object]], *, timeout_s: float) -> None:
    """Return when nothing is found any more; fail with what is left when that takes too long."""
    deadline = time.monotonic() + timeout_s
    while left := find():
        assert time.monotonic() < deadline, f"left after {timeout_s:.1f} s: {left}"
        time.sleep(0.3)


def _living() -> Iterator[psutil.Process]:
    for process in psutil.process_iter(["name", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE:
            yield process


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        entries = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries)
    return {name: value for name, _, value in pairs}


def _is_parent(process: psutil.Process) -> bool:
    try:
        return _PARENT in process.cmdline()
    except psutil.Error:
        return False


def _is_rank(process: psutil.Process) -> bool:
    try:
        above = process.parent()
    except psutil.Error:
        return False
    return above is not None and _is_parent(above)


def _rank_of(process: psutil.Process) -> int | None:
    try:
        log = Path(f"/proc/{process.pid}/fd/1").readlink()
    except OSError:
        return None
    match = _RANK_LOG.search(log.name)
    return int(match[1]) if match else None
