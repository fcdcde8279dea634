"""A build of DeepSpeed's ops on one node: the process that a slot starts, and its events."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Any

from autotune.trial import wire
from autotune.trial.build_ops import last_lines
from autotune.trial.process_exit import kill_group


class OpBuild:
    """A running build.

    Args:
        ops: DeepSpeed's names.
        environment: that of the ranks, so that the build is the one they would make.
    """

    def __init__(self, ops: Sequence[str], environment: Mapping[str, str]) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile(prefix="autotune-build-")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "autotune.trial.build_ops", str(os.getpid()), *ops],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=dict(environment),
            # Leads a session: its compilers end with it.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._events_fd = self._process.stdout.fileno()
        os.set_blocking(self._events_fd, False)
        self._reader = wire.LineReader()
        self._why: str | None = None

    def poll(self, wait_s: float) -> dict[str, Any]:
        """Wait for the end, at most `wait_s` seconds; not to be called after it.

        Returns:
            `building`, the ops whose compilation started since the last call; `done`; and `why` it
            failed, or None.
        """
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            done = False
        else:
            done = True
        building = self._take_events()
        if done and self._process.returncode != 0 and self._why is None:
            self._why = f"ended with code {self._process.returncode}: {self._log_end()}"
        if done:
            self._close()
        return {"building": building, "done": done, "why": self._why}

    def stop(self) -> None:
        """End the build and its compilers."""
        kill_group(self._process.pid)
        self._process.wait()
        self._close()

    def _close(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _take_events(self) -> list[str]:
        building: list[str] = []
        while True:
            try:
                chunk = os.read(self._events_fd, 1 << 16)
            except BlockingIOError:
                return building
            if not chunk:
                return building
            for event in self._reader.feed(chunk):
                if event["kind"] == "building":
                    building.append(event["op"])
                elif event["kind"] == "failed":
                    self._why = f"{event['op']}: {event['why']}"

    def _log_end(self) -> str:
        self._log.seek(0)
        return last_lines(self._log.read().decode("utf-8", errors="replace"))
