"""Ends the processes of a dead driver: ``python -m autotune.pool.watcher MARK``.

Ray's processes survive a killed driver by up to 85 s, and a compiler that a rank started survives
for as long as it compiles. The driver holds a pipe to this process, which runs in its own session;
when the pipe closes, it ends every process with the driver's mark in its environment, and all their
descendants. The same happens after an orderly close, when nothing is left.

Ray's agents wipe their environment when they name themselves, and their parent dies with the
driver. They are therefore recorded while it still runs: repeatedly until the driver has written
that Ray has started, and once more then.

Before the driver shuts Ray down it writes that too. It then has a few seconds: a cluster that no
longer answers (for example after a SIGTERM to the whole process group) would block it forever, and
unblocks it when its processes have ended.
"""

import os
import select
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import psutil

MARK_VARIABLE = "AUTOTUNE_POOL"
_SLOT_FOLDER = "autotune-slot-"
STARTED = b"Ray has started\n"
CLOSING = b"Ray is being shut down\n"
_LOOK_S = 0.5
_CLOSE_S = 3.0
"""How long Ray may take to shut down; usually two seconds."""
_ROUNDS = 3
"""A process may start while its siblings are being ended."""


def slot_folder_prefix() -> str:
    """Return the prefix of the folders of slots that this driver's cluster starts.

    Ray kills slots, so they cannot remove their folders themselves.
    """
    mark = os.environ.get(MARK_VARIABLE)
    return f"{_SLOT_FOLDER}{mark}-" if mark else _SLOT_FOLDER


def main(mark: str) -> None:
    """Wait until the driver ends, or its shutdown of Ray takes too long; then end what is left."""
    _end(_note_until_the_end(mark), mark)
    for folder in Path(tempfile.gettempdir()).glob(f"{_SLOT_FOLDER}{mark}-*"):
        shutil.rmtree(folder, ignore_errors=True)


def _end(noted: set[psutil.Process], mark: str) -> None:
    for _ in range(_ROUNDS):
        left = _living({*noted, *_descendants(_marked(mark))})
        if not left:
            return
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=1)


def _note_until_the_end(mark: str) -> set[psutil.Process]:
    """Return the driver's descendants, recorded while it ran; blocks until they have to end."""
    noted: set[psutil.Process] = set()
    closing = False
    wait_s: float | None = _LOOK_S
    while True:
        written, _, _ = select.select([0], [], [], wait_s)
        if written:
            received = os.read(0, 1 << 10)
            if not received:
                return noted
            closing = CLOSING in received
            wait_s = _CLOSE_S if closing else None
        elif closing:
            return noted
        noted.update(_descendants(_marked(mark)))


def _marked(mark: str) -> list[psutil.Process]:
    entry = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for process in psutil.process_iter():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        if process.pid != os.getpid() and entry in environment.split(b"\0"):
            found.append(process)
    return found


def _descendants(processes: list[psutil.Process]) -> set[psutil.Process]:
    """Return the processes and their descendants; `setproctitle` may have wiped a mark there."""
    found = set(processes)
    for process in processes:
        try:
            found.update(process.children(recursive=True))
        except psutil.NoSuchProcess:
            continue
    return found


def _living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those that run and are not zombies: an orphan may have no parent that reaps it."""
    living = []
    for process in processes:
        try:
            # Also detects that a process id was reused.
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
        except psutil.NoSuchProcess:
            continue
    return living


if __name__ == "__main__":
    main(sys.argv[1])
