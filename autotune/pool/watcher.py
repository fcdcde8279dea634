"""Ends what a dead driver leaves behind: ``python -m autotune.pool.watcher MARK``.

Ray's own processes survive a killed driver by up to 85 s, and a compiler that a rank started
survives for as long as it compiles. The driver holds a pipe to this process, which lives in a
session of its own; when the pipe closes, whatever carries the driver's mark in its environment
ends, with all its descendants. The same happens after an orderly close, when nothing is left.
"""

import os
import sys
from pathlib import Path

import psutil

MARK_VARIABLE = "AUTOTUNE_POOL"
_ROUNDS = 3
"""A process may be started while its siblings are being ended."""


def main(mark: str) -> None:
    """Wait for the driver's end, then end what it left."""
    while os.read(0, 1 << 10):
        pass
    for _ in range(_ROUNDS):
        left = _descendants(_marked(mark))
        if not left:
            return
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=2)


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


def _descendants(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes and all below them; `setproctitle` may have wiped a mark there."""
    found = {process.pid: process for process in processes}
    for process in processes:
        try:
            below = process.children(recursive=True)
        except psutil.NoSuchProcess:
            continue
        found |= {child.pid: child for child in below}
    return list(found.values())


if __name__ == "__main__":
    main(sys.argv[1])
