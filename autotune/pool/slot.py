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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.errors import DispatchError
from autotune.pool.clocks import ClockMeter
from autotune.pool.machine import (
    cuda_device,
    cuda_driver_version,
    cuda_processes,
    cuda_used_bytes,
    host_memory_bytes,
    num_cpus,
)
from autotune.pool.op_build import OpBuild
from autotune.pool.rank_run import RankRun
from autotune.pool.watcher import slot_folder_prefix
from autotune.trial import cuda_arch_list, wire
from autotune.trial.failure_kind import FailureKind
from autotune.trial.process_exit import kill_group

_PRELOAD_S = 300.0
"""Importing torch, DeepSpeed and transformers from a cold network disk takes minutes."""
_EMPTY_S = 30.0
"""How long a driver may take to free the memory of a rank that has ended."""
_NEGLIGIBLE_BYTES = 64 << 20
_STACKS_S = 0.3
"""How long a hung rank has to write its stacks before it is killed."""
_KILL_S = 30.0


class Slot:
    """A device with a preloaded parent; at most one rank runs here at a time.

    Every method returns within seconds: the driver polls, so that it can also stop the rank.
    """

    def __init__(self, device_kind: str, model_type: str) -> None:
        # Ray sets CUDA_VISIBLE_DEVICES to the devices of this worker.
        self._visible_devices = (
            os.environ.get("CUDA_VISIBLE_DEVICES", "") if device_kind == "cuda" else ""
        )
        self._device = f"cuda:{self._visible_devices}" if self._visible_devices else "cpu"
        self._device_kind = device_kind
        self._model_type = model_type
        self._log_folder = tempfile.TemporaryDirectory(prefix=slot_folder_prefix())
        self._run: RankRun | None = None
        self._build: OpBuild | None = None
        self._clocks = ClockMeter(self._visible_devices)
        self._used_when_empty = cuda_used_bytes(self._visible_devices)
        self._full_since: float | None = None
        self._events_fd = -1
        self._num_starts = 0
        """Starts of the parent since one was last ready."""
        # From __init__, which Ray runs on the worker's main thread: the parent's death signal
        # follows the thread that started it.
        self._start_parent()

    def describe(self) -> dict[str, Any]:
        """Return the facts about this device that the driver needs."""
        device_name, device_bytes = cuda_device(self._visible_devices)
        return {
            "host": platform.node(),
            "device": self._device,
            "visible_devices": self._visible_devices,
            "host_memory_bytes": host_memory_bytes(),
            "num_cpus": num_cpus(),
            "device_name": device_name,
            "device_bytes": device_bytes,
            "notes": self._notes(),
            "driver": cuda_driver_version(),
            "pid": os.getpid(),
        }

    def _notes(self) -> list[str]:
        """Return notes for the user about the ranks' environment."""
        given = os.environ.get(cuda_arch_list.VARIABLE, "")
        if self._device_kind != "cuda" or cuda_arch_list.is_readable(given):
            return []
        cured = cuda_arch_list.readable(given)
        remedy = f"the ranks get {cured}" if cured else "the ranks ask their devices instead"
        return [
            f"{platform.node()}: {cuda_arch_list.VARIABLE}={given}: DeepSpeed's builder cannot "
            f"read it; {remedy}"
        ]

    def build_ops(self, ops: Sequence[str]) -> None:
        """Start to build DeepSpeed's ops for all slots of this node."""
        self._build = OpBuild(ops, os.environ | _parent_environment(self._device_kind))

    def poll_build(self, wait_s: float) -> dict[str, Any]:
        """Wait for the end of the build, at most `wait_s` seconds; see `OpBuild.poll`."""
        assert self._build is not None
        return self._build.poll(wait_s)

    def ready(self, wait_s: float) -> bool:
        """Wait until a rank can be launched, at most `wait_s` seconds; return whether it can.

        Raises:
            DispatchError: the parent does not start.
        """
        if self._run is not None:
            self.stop("another trial starts here")
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
        """Return whether the device has freed the memory of the previous rank.

        Raises:
            DispatchError: it has not after a long time; another process uses the device.
        """
        used = cuda_used_bytes(self._visible_devices)
        # Processes that were still ending when this slot started do not count.
        self._used_when_empty = min(self._used_when_empty, used)
        left = used - self._used_when_empty
        if left <= _NEGLIGIBLE_BYTES:
            self._full_since = None
            return True
        now = time.monotonic()
        self._full_since = self._full_since or now
        if now - self._full_since > _EMPTY_S:
            raise DispatchError(
                f"{self._name}: {left} bytes are in use by another process"
                f"{_holders(self._visible_devices)}; a trial next to another program would measure "
                "both"
            )
        time.sleep(min(wait_s, 0.1))
        return False

    def launch(self, program: str, spec: Mapping[str, Any], place: Mapping[str, Any]) -> None:
        """Fork a rank; call `ready` first.

        Raises:
            DispatchError: the parent has ended.
        """
        log = Path(self._log_folder.name) / f"{spec['label']}-rank-{place['rank']}.log"
        self._command({"program": program, "spec": spec, "place": {**place, "log_path": str(log)}})
        self._run = RankRun(spec, place["rank"], log, self._name)

    def poll(self, wait_s: float) -> dict[str, Any]:
        """Wait for events of the rank, at most `wait_s` seconds.

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

    def stop(self, why: str) -> dict[str, Any] | None:
        """End the rank if it still runs, wait until it has ended, and return its report.

        None if there is no rank: `poll` has returned its report.
        """
        run = self._run
        if run is None:
            return None
        if run.ended is None:
            run.fail(FailureKind.STOPPED, why)
            self._kill(run)
        return self._finish(run)

    def close(self) -> None:
        """Remove this slot's files; in a cluster that keeps running nothing else removes them."""
        self._log_folder.cleanup()

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
            raise DispatchError(f"{self._name}: the preloaded parent has ended") from error

    def _pump(self, wait_s: float) -> None:
        """Process what the parent and its rank have written."""
        if not self._selector.select(wait_s):
            self._sample_clocks()
            return
        chunk = os.read(self._events_fd, 1 << 16)
        if not chunk:
            # The parent has ended, and by its death signal the rank too.
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
        self._sample_clocks()

    def _sample_clocks(self) -> None:
        if self._run and self._run.is_steady:
            self._clocks.sample()

    def _end_hung(self, run: RankRun) -> None:
        """Have a hung rank write its stacks, then end it."""
        suspended = run.is_suspended()
        how = "is stopped (SIGSTOP)" if suspended else "sent no progress mark"
        run.fail(FailureKind.HUNG, f"{how} for {run.hang_timeouts_s:.0f} s in {run.where}")
        if run.pid and not suspended:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(run.pid, signal.SIGUSR1)
            time.sleep(_STACKS_S)
        self._kill(run)

    def _kill(self, run: RankRun) -> None:
        deadline = time.monotonic() + _KILL_S
        while run.ended is None:
            if run.pid:
                kill_group(run.pid)
            self._pump(0.1)
            if time.monotonic() > deadline:
                # Probably a driver that hangs in the kernel. Nothing can run here any more.
                raise DispatchError(
                    f"{self._name}: rank {run.rank} (process {run.pid}) cannot be killed"
                )

    def _finish(self, run: RankRun) -> dict[str, Any]:
        self._run = None
        return run.report(self._clocks.take())


def _holders(visible_devices: str) -> str:
    """Return which processes use a device, as far as NVML reports them."""
    holders = cuda_processes(visible_devices)
    if not holders:
        return ""
    return f" ({', '.join(f'process {pid}: {held} bytes' for pid, held in holders)})"


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
    given = os.environ.get(cuda_arch_list.VARIABLE, "")
    if not cuda_arch_list.is_readable(given):
        environment[cuda_arch_list.VARIABLE] = cuda_arch_list.readable(given)
    return environment
