"""One device: the actor that owns a preloaded parent and supervises its ranks.

Runs in a Ray worker; imports neither torch nor Ray.
"""

import contextlib
import math
import os
import platform
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import DispatchError
from autotune.outcome import Phase
from autotune.pool.machine import (
    cuda_device,
    cuda_driver_version,
    cuda_used_bytes,
    host_memory_bytes,
    num_cpus,
    num_oom_kills,
)
from autotune.trial import wire
from autotune.trial.ending import kill_group
from autotune.trial.failure_kind import FailureKind

_PRELOAD_S = 300.0
"""Importing torch, DeepSpeed and transformers from a cold network disk takes minutes."""
_EMPTY_S = 30.0
"""How long a driver may take to give back the memory of a rank that is gone."""
_NEGLIGIBLE_BYTES = 64 << 20
_MAX_LOG_BYTES = 8 << 20
_STACKS_S = 0.3
"""How long a hung rank gets to write its stacks before it is killed."""
_KILL_S = 30.0


class Slot:
    """A device with a preloaded parent; at most one rank lives here at a time.

    Every method returns within seconds: the driver asks again, so that it can also say stop.
    """

    def __init__(self, device_kind: str, model_type: str) -> None:
        # Ray sets CUDA_VISIBLE_DEVICES to what it gave this worker.
        self._visible_devices = (
            os.environ.get("CUDA_VISIBLE_DEVICES", "") if device_kind == "cuda" else ""
        )
        self._device = f"cuda:{self._visible_devices}" if self._visible_devices else "cpu"
        self._device_kind = device_kind
        self._model_type = model_type
        self._log_folder = tempfile.TemporaryDirectory(prefix="autotune-slot-")
        self._run: _Run | None = None
        self._used_when_empty = cuda_used_bytes(self._visible_devices)
        self._full_since: float | None = None
        self._events_fd = -1
        self._num_starts = 0
        """Of the parent, since one was last ready."""
        # From __init__, which Ray runs on the worker's main thread: the parent's death signal
        # follows the thread that started it.
        self._start_parent()

    def describe(self) -> dict[str, Any]:
        """Return what the driver needs to know of this device."""
        device_name, device_bytes = cuda_device(self._visible_devices)
        return {
            "host": platform.node(),
            "device": self._device,
            "visible_devices": self._visible_devices,
            "host_memory_bytes": host_memory_bytes(),
            "num_cpus": num_cpus(),
            "device_name": device_name,
            "device_bytes": device_bytes,
            "driver": cuda_driver_version(),
            "pid": os.getpid(),
        }

    def ready(self, wait_s: float) -> bool:
        """Wait until a rank can be launched, at most `wait_s` seconds; return whether it can.

        Raises:
            DispatchError: the parent cannot be had.
        """
        if self._run is not None:
            self.stop("another trial begins here")
        if not self._ready:
            self._pump(wait_s)
        if self._parent.poll() is not None or time.monotonic() > self._preloaded_until:
            if self._num_starts > 1:
                raise DispatchError(
                    f"{self._name}: the preloaded parent did not start: {self._parent_log()}"
                )
            self._start_parent()
        return self._ready and self._is_empty(wait_s)

    def _is_empty(self, wait_s: float) -> bool:
        """Return whether the device has its memory back from the rank before.

        Raises:
            DispatchError: it has not for too long; somebody else uses the device.
        """
        left = cuda_used_bytes(self._visible_devices) - self._used_when_empty
        if left <= _NEGLIGIBLE_BYTES:
            self._full_since = None
            return True
        now = time.monotonic()
        self._full_since = self._full_since or now
        if now - self._full_since > _EMPTY_S:
            raise DispatchError(
                f"{self._name}: {left} bytes are in use that no rank of ours holds; a trial "
                "beside another program would measure both"
            )
        time.sleep(min(wait_s, 0.1))
        return False

    def launch(self, spec: Mapping[str, Any], place: Mapping[str, Any]) -> None:
        """Fork a rank; `ready` has said that it can be.

        Raises:
            DispatchError: the parent is gone.
        """
        log = Path(self._log_folder.name) / f"{spec['label']}-rank-{place['rank']}.log"
        self._command({"spec": spec, "place": {**place, "log_path": str(log)}})
        self._run = _Run(spec, place["rank"], log, self._name)

    def poll(self, wait_s: float) -> dict[str, Any]:
        """Wait for news of the rank, at most `wait_s` seconds.

        Returns:
            `marks`, the progress since the last call; `port` of the rendezvous store, once rank 0
            has opened it; and `report` once the rank has ended.
        """
        run = self._run
        if run is None:
            raise DispatchError(f"{self._name}: no rank was launched here")
        if run.ended is None:
            self._pump(min(wait_s, max(run.silent_until - time.monotonic(), 0.0)))
            if run.ended is None and time.monotonic() >= run.silent_until:
                self._end_hung(run)
        marks, run.marks = run.marks, []
        return {
            "marks": marks,
            "port": run.port,
            "report": self._finish(run) if run.ended is not None else None,
        }

    def stop(self, why: str) -> dict[str, Any]:
        """End the rank if it still lives, wait until it is gone, and return its report."""
        run = self._run
        if run is None:
            raise DispatchError(f"{self._name}: no rank was launched here")
        if run.ended is None:
            run.fail(FailureKind.STOPPED, why)
            self._kill(run)
        return self._finish(run)

    @property
    def _name(self) -> str:
        return f"{platform.node()} {self._device}"

    def _start_parent(self) -> None:
        if self._events_fd >= 0:
            os.close(self._events_fd)
        self._events_fd, theirs = os.pipe()
        os.set_blocking(self._events_fd, False)
        self._reader = wire.LineReader()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._events_fd, selectors.EVENT_READ)
        log = Path(self._log_folder.name) / "parent.log"
        with log.open("wb") as output:
            self._parent = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "autotune.trial.parent",
                    str(theirs),
                    str(os.getpid()),
                    self._device_kind,
                    self._model_type,
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs],
                env=os.environ | _parent_environment(self._device_kind),
            )
        os.close(theirs)
        self._ready = False
        self._num_starts += 1
        self._preloaded_until = time.monotonic() + _PRELOAD_S

    def _parent_log(self) -> str:
        path = Path(self._log_folder.name) / "parent.log"
        return path.read_text(encoding="utf-8", errors="replace").strip()[-2000:]

    def _command(self, command: Mapping[str, Any]) -> None:
        assert self._parent.stdin is not None
        try:
            wire.send(self._parent.stdin.fileno(), "fork", **command)
        except BrokenPipeError as error:
            raise DispatchError(f"{self._name}: the preloaded parent is gone") from error

    def _pump(self, wait_s: float) -> None:
        """Take in what the parent and its rank have written."""
        if not self._selector.select(wait_s):
            return
        chunk = os.read(self._events_fd, 1 << 16)
        if not chunk:
            # The parent is gone, and by its death signal the rank as well.
            self._parent.wait()
            self._ready = False
            if self._run and self._run.ended is None:
                self._run.fail(FailureKind.SIGNAL, "the preloaded parent was killed")
                self._run.ended = -signal.SIGKILL
            return
        for event in self._reader.feed(chunk):
            if event["kind"] == "ready":
                self._ready, self._num_starts = True, 0
                self._preloaded_until = math.inf
            elif event["kind"] == "unfit":
                raise DispatchError(
                    f"{self._name}: the preloaded parent has {event['threads']} threads; "
                    "a fork of it would hang"
                )
            elif self._run:
                self._run.take(event)

    def _end_hung(self, run: "_Run") -> None:
        """Ask a rank that went silent for its stacks, then end it."""
        suspended = run.is_suspended()
        how = "is stopped (SIGSTOP)" if suspended else "sent no progress mark"
        run.fail(FailureKind.HUNG, f"{how} for {run.silence_s:.0f} s in {run.where}")
        if run.pid and not suspended:
            with contextlib.suppress(ProcessLookupError):  # it has ended this very moment
                os.kill(run.pid, signal.SIGUSR1)
            time.sleep(_STACKS_S)
        self._kill(run)

    def _kill(self, run: "_Run") -> None:
        deadline = time.monotonic() + _KILL_S
        while run.ended is None:
            if run.pid:
                kill_group(run.pid)
            self._pump(0.1)
            if time.monotonic() > deadline:
                # In the kernel, most likely: a driver that hangs. Nothing can run here any more.
                raise DispatchError(
                    f"{self._name}: rank {run.rank} (process {run.pid}) cannot be killed"
                )

    def _finish(self, run: "_Run") -> dict[str, Any]:
        self._run = None
        return run.report()


class _Run:
    """What is known of the rank that runs, or ran, here."""

    def __init__(self, spec: Mapping[str, Any], rank: int, log: Path, name: str) -> None:
        self._silence = spec["silence_s"]
        self.rank = rank
        self._log = log
        self._name = name
        self._phase = Phase.BUILD
        self._measurement: Mapping[str, Any] | None = None
        self._stop: str | None = None
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
        self.silent_until = time.monotonic() + self.silence_s

    @property
    def silence_s(self) -> float:
        return float(self._silence[self._phase.value])

    def take(self, event: Mapping[str, Any]) -> None:
        """Take in one event of the rank or of its parent."""
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
                self.silent_until = time.monotonic() + self.silence_s
            case "measured":
                self._measurement, self._stop = event["measurement"], event["stop"]
            case "failed":
                self.fail(FailureKind(event["failure"]), event["message"], event["needed_bytes"])
            case "exited" if event["pid"] == self.pid:
                self.ended = event["code"]
                self._exited_at = event["at"]
                self._explain_exit(event["code"])

    def fail(self, kind: FailureKind, message: str, needed_bytes: int | None = None) -> None:
        """Note why the rank failed; the first reason stays."""
        if self._failure is None and self._measurement is None:
            self._failure = {
                "kind": kind.value,
                "phase": self._phase.value,
                "message": message,
                "at": time.time(),
                "progress": self._num_marks,
                "needed_bytes": needed_bytes,
                "suspended": self.is_suspended(),
            }

    def _explain_exit(self, code: int) -> None:
        if code == -signal.SIGKILL and num_oom_kills() > self._oom_kills_before:
            self.fail(FailureKind.HOST_MEMORY, "killed by the kernel: host memory ran out")
        elif code < 0:
            self.fail(FailureKind.SIGNAL, f"killed by {signal.Signals(-code).name}")
        else:
            self.fail(FailureKind.SIGNAL, f"exited with code {code} before it had reported")

    def is_suspended(self) -> bool:
        """Return whether the process is stopped by a signal (state T), not hung in a call."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        except OSError:
            return False
        return state.rpartition(")")[2].split()[0] == "T"

    def report(self) -> dict[str, Any]:
        """Return the rank's `autotune.trial.report.RankReport` as JSON values."""
        log = ""
        if self._log.exists():
            with self._log.open("rb") as file:
                log = file.read(_MAX_LOG_BYTES).decode("utf-8", errors="replace")
            self._log.unlink()
        return {
            "rank": self.rank,
            "device": self._name,
            "log": log,
            "measurement": self._measurement,
            "stop": self._stop,
            "failure": self._failure,
            "forked_at": self._forked_at,
            "exited_at": self._exited_at,
        }


def _parent_environment(device_kind: str) -> dict[str, str]:
    # One thread while importing: a fork of a process with an OpenMP pool hangs.
    environment = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        # Named, so that DeepSpeed does not look for it: it would ask NVML or CUDA.
        "DS_ACCELERATOR": device_kind,
        # pyarrow, which transformers imports, would start a thread for its allocator.
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
    }
    if device_kind == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment
