"""Ranks that share one card: ``python -m tests.gpu.shared_card DEVICE_KIND MODEL_TYPE``.

Reads JSON lines, each ``{"spec": ..., "num_processes": N}``, and runs them side by side with the
product's own rank code, forked from one process that has imported everything. N real ranks talk
over gloo, since NCCL wants a card for each; a spec with an emulation is one process. Writes the
results to standard output, a JSON list per line that was read: what each rank measured, or why it
measured nothing.

No ceiling is enforced: a rank could not tell its own memory outside the allocator from others'.
"""

import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.trial import process_exit, wire
from autotune.trial.build_locks import remove_stale_locks
from autotune.trial.preload import preload

_TIMEOUT_S = 250.0


class _Rank:
    """A forked rank, and what it said."""

    def __init__(self, spec: Mapping[str, Any], place: Mapping[str, Any]) -> None:
        self.log = Path(str(place["log_path"]))
        self.fd, theirs = os.pipe()
        self.said: Any = None
        self._reader = wire.LineReader()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.fd)
            _become_rank(parent, spec, place, theirs)
        os.close(theirs)

    def read(self) -> bool:
        """Take in what it writes; return whether it has closed its end."""
        chunk = os.read(self.fd, 1 << 16)
        for event in self._reader.feed(chunk):
            if event["kind"] == "measured":
                self.said = event["measurement"]
            elif event["kind"] == "failed":
                self.said = f"{event['phase']}: {event['message']}"
        return not chunk

    def result(self) -> Any:
        if self.said is None:
            self.said = f"no report; its log ends with: {self.log.read_text()[-2000:]}"
        return self.said


def _become_rank(
    parent: int, spec: Mapping[str, Any], place: Mapping[str, Any], events_fd: int
) -> None:
    """Never returns."""
    code = 1
    try:
        os.setsid()
        process_exit.die_with_parent(parent, signal.SIGKILL)
        from autotune.trial.device.cuda import CudaDevice
        from autotune.trial.rank import run_rank
        from autotune.trial.spec import TrialSpec

        CudaDevice.backend = "gloo"
        CudaDevice.enforce_ceiling = lambda self: None  # type: ignore[method-assign]
        code = run_rank(spec, place, events_fd, program=TrialSpec.program)
    finally:
        os._exit(code)


def run(jobs: Sequence[Mapping[str, Any]], folder: Path) -> list[list[Any]]:
    """Run jobs side by side; return each one's results, by rank."""
    groups = []
    for job in jobs:
        port, size = _free_port(), int(job["num_processes"])
        places = [
            {
                "rank": rank,
                "world_size": size,
                # Each sees the one card there is.
                "local_rank": 0,
                "local_world_size": size,
                "master_addr": "127.0.0.1",
                "master_port": port,
                "log_path": str(folder / f"{job['spec']['label']}-{rank}.log"),
            }
            for rank in range(size)
        ]
        groups.append([_Rank(job["spec"], place) for place in places])
    _follow([rank for group in groups for rank in group])
    return [[rank.result() for rank in group] for group in groups]


def _follow(ranks: Sequence[_Rank]) -> None:
    """Return when all have ended; those that take too long, or whose peer failed, are ended."""
    selector = selectors.DefaultSelector()
    for rank in ranks:
        selector.register(rank.fd, selectors.EVENT_READ, rank)
    deadline = time.monotonic() + _TIMEOUT_S
    while selector.get_map() and time.monotonic() < deadline:
        for key, _ in selector.select(1.0):
            if key.data.read():
                selector.unregister(key.fd)
        if any(isinstance(rank.said, str) for rank in ranks):
            deadline = min(deadline, time.monotonic() + 5)
    for rank in ranks:
        process_exit.kill_group(rank.pid)
        os.waitpid(rank.pid, 0)
        os.close(rank.fd)


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def main(device_kind: str, model_type: str) -> None:
    """Run each wave of jobs that is read: a line is a wave."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed logs there while it is imported
    remove_stale_locks()
    preload(model_type, device_kind=device_kind)
    with tempfile.TemporaryDirectory(prefix="shared-card-") as folder:
        for line in sys.stdin:
            results.write(json.dumps(run(json.loads(line), Path(folder))) + "\n")
            results.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
