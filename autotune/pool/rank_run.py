"""A slot's record of the rank that runs, or ran, on its device."""

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.pool.machine import num_oom_kills
from autotune.study.outcome import DeviceClocks, Phase
from autotune.trial.failure_kind import FailureKind

_MAX_LOG_BYTES = 8 << 20


class RankRun:
    """The state of the rank that runs, or ran, here."""

    def __init__(self, spec: Mapping[str, Any], rank: int, log: Path, name: str) -> None:
        self._silence = spec["hang_timeouts_s"]
        self.rank = rank
        self._log = log
        self._name = name
        self._phase = Phase.BUILD
        self._measurement: Mapping[str, Any] | None = None
        self._stop: str | None = None
        self._probed: Mapping[str, Any] | None = None
        self._failure: dict[str, Any] | None = None
        self._num_marks = 0
        self._forked_at = self._exited_at = time.time()
        self._oom_kills_before = num_oom_kills()
        self.where = "fork"
        self.marks: list[tuple[str, str]] = []
        self.pid = 0
        self.port: int | None = None
        self.ended: int | None = None
        """The exit code, negative for a signal, once the rank is gone."""
        self.silent_until = time.monotonic() + self.hang_timeouts_s

    @property
    def is_steady(self) -> bool:
        """Whether the rank is in its steady steps."""
        return self._phase is Phase.STEADY and self._measurement is None and self.ended is None

    @property
    def hang_timeouts_s(self) -> float:
        """How long the rank may go without a mark in its current phase."""
        return float(self._silence[self._phase.value])

    def take(self, event: Mapping[str, Any]) -> None:
        """Process one event of the rank or of its parent."""
        match event["kind"]:
            case "forked":
                self.pid = event["pid"]
                self._forked_at = event["at"]
            case "store":
                self.port = event["port"]
            case "mark":
                self._phase = Phase(event["phase"])
                self.where = f"{event['phase']}: {event['where']}"
                self.marks.append((event["phase"], event["where"]))
                self._num_marks += 1
                self.silent_until = time.monotonic() + self.hang_timeouts_s
            case "measured":
                self._measurement, self._stop = event["measurement"], event["stop"]
            case "probed":
                self._probed = event["rows"]
            case "failed":
                self.fail(
                    FailureKind(event["failure"]),
                    event["message"],
                    needed_bytes=event["needed_bytes"],
                    short_bytes=event["short_bytes"],
                )
            case "exited" if event["pid"] == self.pid:
                self.ended = event["code"]
                self._exited_at = event["at"]
                self._explain_exit(event["code"])

    def fail(
        self,
        kind: FailureKind,
        message: str,
        *,
        needed_bytes: int | None = None,
        short_bytes: int | None = None,
    ) -> None:
        """Record why the rank failed; the first reason is kept."""
        if self._failure is None and self._measurement is None and self._probed is None:
            self._failure = {
                "kind": kind.value,
                "phase": self._phase.value,
                "message": message,
                "at": time.time(),
                "progress": self._num_marks,
                "needed_bytes": needed_bytes,
                "short_bytes": short_bytes,
                "suspended": self.is_suspended(),
            }

    def _explain_exit(self, code: int) -> None:
        if code == -signal.SIGKILL and num_oom_kills() > self._oom_kills_before:
            self.fail(FailureKind.HOST_MEMORY, "killed by the kernel: host memory ran out")
        elif code < 0:
            self.fail(FailureKind.SIGNAL, f"killed by {signal.Signals(-code).name}")
        else:
            self.fail(FailureKind.SIGNAL, f"exited with code {code} before it reported")

    def is_suspended(self) -> bool:
        """Return whether the process is stopped by a signal (state T), not hung in a call."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        except OSError:
            return False
        return state.rpartition(")")[2].split()[0] == "T"

    def report(self, clocks: DeviceClocks | None) -> dict[str, Any]:
        """Return the rank's `autotune.trial.report.RankReport` as JSON values."""
        log = ""
        clock_values = clocks.to_json() if clocks else None
        if self._log.exists():
            with self._log.open("rb") as file:
                log = file.read(_MAX_LOG_BYTES).decode("utf-8", errors="replace")
            self._log.unlink()
        return {
            "rank": self.rank,
            "device": self._name,
            "log": log,
            "measurement": self._measurement and {**self._measurement, "clocks": clock_values},
            "stop": self._stop,
            "probed": self._probed,
            "failure": self._failure,
            "forked_at": self._forked_at,
            "exited_at": self._exited_at,
        }
