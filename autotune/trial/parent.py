"""The preloaded parent of a slot's ranks: imports once, forks per trial.

Started by a slot as ``python -m autotune.trial.parent EVENTS_FD SLOT_PID DEVICE_KIND MODEL_TYPE``.
Reads one command a line on standard input: ``{"program": ..., "spec": ..., "place": ...}`` forks a
rank, end of file ends it and its rank. Writes events to EVENTS_FD: ``ready``, ``forked``,
``exited``; its ranks write theirs to the same pipe.

It never uses CUDA and never runs a tensor operation, so that its forks may do both.
"""

import os
import selectors
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.trial import process_exit, wire
from autotune.trial.preload import preload


def main(events_fd: int, slot_pid: int, *, device_kind: str, model_type: str) -> None:
    """Preload, then fork on command until standard input ends."""
    process_exit.die_with_parent(slot_pid, signal.SIGTERM)
    # Ctrl-C in the driver's terminal reaches this process too; the driver decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    preload(model_type, device_kind=device_kind)
    _Forks(events_fd).serve()


class _Forks:
    """At most one running rank, and the loop that waits for commands and its end."""

    def __init__(self, events_fd: int) -> None:
        self._events_fd = events_fd
        self._rank_pid = 0
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, self._end)
        os.set_blocking(0, False)
        self._selector.register(0, selectors.EVENT_READ)
        # A rank's end wakes the loop through a pipe: not every kernel has pidfd.
        child_ended, written_on_signal = os.pipe()
        os.set_blocking(written_on_signal, False)
        signal.set_wakeup_fd(written_on_signal, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(child_ended, selectors.EVENT_READ)
        commands = wire.LineReader()
        wire.send(self._events_fd, "ready", pid=os.getpid(), threads=_num_threads())
        while True:
            for key, _ in self._selector.select():
                if key.fd == child_ended:
                    os.read(child_ended, 1 << 10)
                    self._reap()
                    continue
                chunk = os.read(0, 1 << 20)
                if not chunk:
                    self._end()
                for command in commands.feed(chunk):
                    self._fork(command)

    def _fork(self, command: Mapping[str, Any]) -> None:
        if _num_threads() != 1:
            wire.send(self._events_fd, "unfit", threads=_num_threads())
            return
        parent_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_rank(parent_pid, command)
        self._rank_pid = pid
        wire.send(self._events_fd, "forked", pid=pid, at=time.time())

    def _become_rank(self, parent_pid: int, command: Mapping[str, Any]) -> None:
        """Never returns."""
        # Imported here, not above: only a fork may import what could start a thread.
        from autotune.trial.rank import run_rank

        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            process_exit.die_with_parent(parent_pid, signal.SIGKILL)
            self._selector.close()
            code = run_rank(
                command["spec"], command["place"], self._events_fd, program=command["program"]
            )
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # No destructors: they would wait for peers that have ended.
            os._exit(code)

    def _reap(self) -> None:
        if not self._rank_pid:
            return
        pid, status = os.waitpid(self._rank_pid, os.WNOHANG)
        if pid == 0:
            return  # stopped or continued, not ended
        # The rank leads its own session: processes that it left behind end with it.
        process_exit.kill_group(self._rank_pid)
        wire.send(
            self._events_fd,
            "exited",
            pid=self._rank_pid,
            code=os.waitstatus_to_exitcode(status),
            at=time.time(),
        )
        self._rank_pid = 0

    def _end(self, *_: object) -> None:
        if self._rank_pid:
            process_exit.kill_group(self._rank_pid)
        os._exit(0)


def _num_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), device_kind=sys.argv[3], model_type=sys.argv[4])
