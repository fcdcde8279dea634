"""A process for each row, forked from a parent that has imported all and touched no device."""

import contextlib
import faulthandler
import json
import os
import re
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.memory_rows.lines import describe
from tests.benchmarks.memory_rows.meters import CpuMeter, CudaMeter, Meter
from tests.benchmarks.memory_rows.models import MODELS, tiny_config
from tests.benchmarks.memory_rows.progress import say
from tests.benchmarks.memory_rows.rank import NUM_STEPS, measure, peaks
from tests.benchmarks.memory_rows.spec import Spec


def set_environment(device: str) -> None:
    """Set what has to be set before anything is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["DS_ACCELERATOR"] = device
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # DeepSpeed's builder stumbles over suffixes such as 9.0a.
    archs = os.environ.get("TORCH_CUDA_ARCH_LIST")
    if archs:
        os.environ["TORCH_CUDA_ARCH_LIST"] = re.sub(r"(?<=\d)[a-z]\b", "", archs)


class Runner:
    """Forks a process for each row from a parent that has imported all and touched no device."""

    def __init__(self, device: str, *, timeout_s: float, gpu_type: str = "h200") -> None:
        self.device = device
        self.timeout_s = timeout_s
        self.gpu_type = gpu_type
        self.logs = Path(tempfile.mkdtemp(prefix="memory-rows-"))
        self.waited_s = 0.0
        """For kernels to be built, while no row ran."""
        self._builds: dict[str, int] = {}
        self._broken: set[str] = set()

    def prepare(self, rows: Sequence[Spec]) -> None:
        """Import what the rows need, and build their optimizers' kernels."""
        start = time.monotonic()
        _preload(self.device, sorted({MODELS[row.model]["model_type"] for row in rows}))
        threads = len(list(Path("/proc/self/task").iterdir()))
        say(f"imported in {time.monotonic() - start:.1f} s; {threads} thread(s); logs: {self.logs}")
        if threads != 1:
            say("warning: more than one thread; forked rows may hang, and are then ended")
        if self.device == "cuda":
            self._start_builds(rows)

    def _start_builds(self, rows: Sequence[Spec]) -> None:
        from autotune.trial.build_locks import remove_stale_locks

        remove_stale_locks()
        needed = {name for row in rows for name in _ops(row)}
        for name in sorted(needed):
            log = self.logs / f"build-{name}.log"
            self._builds[name] = self._fork(log, lambda name=name: _build_op(name))  # type: ignore[misc]

    def _wait_for_ops(self, row: Spec) -> None:
        """Wait for the kernels that a row needs; others go on building beside it."""
        for name in _ops(row):
            pid = self._builds.pop(name, 0)
            if not pid:
                continue
            start = time.monotonic()
            status = _wait(pid, time.monotonic() + 300)
            self.waited_s += time.monotonic() - start
            say(f"{name}: built (exit {status}) after another {time.monotonic() - start:.1f} s")
            if status:
                self._broken.add(name)
                say(_tail(self.logs / f"build-{name}.log", 30))

    def run(
        self, spec: Spec, *, cap_bytes: int | None = None, num_steps: int = NUM_STEPS
    ) -> dict[str, Any]:
        """Run one row to its end, or to its time limit, and return its columns.

        Args:
            spec: the row.
            cap_bytes: the most that torch's allocator may reserve.
            num_steps: optimizer steps.
        """
        config = MODELS[spec.model]
        if self.device == "cpu":
            spec, config = spec.tiny(), tiny_config(config)
        if self.device == "cuda":
            self._wait_for_ops(spec)
        line = describe(spec, config)
        if self._broken.intersection(_ops(spec)):
            # The row would try to build it again, until its time is up.
            return line | {"status": "error", "message": "its kernel could not be built"}
        start = time.monotonic()
        read_end, write_end = os.pipe()
        log = self.logs / f"{spec.name}{'-capped' if cap_bytes is not None else ''}.log"

        def work() -> None:
            os.close(read_end)
            self._measure(spec, config, write_end, cap_bytes=cap_bytes, num_steps=num_steps)

        pid = self._fork(log, work)
        os.close(write_end)
        deadline = start + self.timeout_s
        for update in _updates(read_end, deadline):
            line |= update
        os.close(read_end)
        status = _wait(pid, min(deadline, time.monotonic() + 5) if line["status"] else deadline)
        _kill_group(pid)
        if not line["status"]:
            late = time.monotonic() >= deadline
            reason = f"took over {self.timeout_s:.0f} s" if late else f"ended with {status}"
            line |= {"status": "error", "message": reason}
        line["row_s"] = f"{time.monotonic() - start:.1f}"
        if line["status"] == "error":
            sys.stderr.write(f"{spec.name}: {line['message']}\n{_tail(log, 25)}\n")
            sys.stderr.flush()
        return line

    def _measure(
        self,
        spec: Spec,
        config: Mapping[str, Any],
        write_end: int,
        *,
        cap_bytes: int | None,
        num_steps: int,
    ) -> None:
        def report(values: Mapping[str, Any]) -> None:
            os.write(write_end, (json.dumps(values) + "\n").encode())

        os.environ.update(
            {
                "RANK": "0",
                "LOCAL_RANK": "0",
                "WORLD_SIZE": str(spec.ranks),
                "LOCAL_SIZE": "1",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29500",  # never opened: the fake group has no rendezvous
            }
        )
        import torch

        faulthandler.enable()
        torch.set_num_threads(min(os.cpu_count() or 1, 8) if self.device == "cuda" else 1)
        meter: Meter = CudaMeter() if self.device == "cuda" else CpuMeter()
        try:
            if cap_bytes is not None:
                meter.cap(cap_bytes)
            measure(spec, config, meter, report, num_steps=num_steps)
        except BaseException as error:  # noqa: BLE001  whatever it is, the other rows go on
            traceback.print_exc()
            text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            ran_out = isinstance(error, torch.cuda.OutOfMemoryError) or (
                "out of memory" in text.lower()
            )
            # What the failing step reached, beside the steps that ended.
            found = peaks(meter) if ran_out else {}
            report(found | {"status": "oom" if ran_out else "error", "message": text})

    def _fork(self, log: Path, work: Callable[[], None]) -> int:
        """Run `work` in a child that leads a session of its own and writes to `log`."""
        from autotune.trial import process_exit

        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.setsid()
            process_exit.die_with_parent(parent, signal.SIGKILL)
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            for standard in (1, 2):
                os.dup2(file, standard)
            work()
            code = 0
        except BaseException:  # noqa: BLE001  a child must not go on as its parent
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _preload(device: str, model_types: Sequence[str]) -> None:
    from autotune.trial.preload import preload

    for model_type in model_types:
        preload(model_type, device_kind=device)


def _ops(row: Spec) -> tuple[str, ...]:
    """Return the DeepSpeed kernels that a row runs."""
    kind = row.optimizer["type"]
    found = []
    if kind == "AdamW":
        found.append("CPUAdamBuilder" if row.offload else "FusedAdamBuilder")
    if kind == "Lion":
        found.append("FusedLionBuilder")
    if any(key.startswith("zero_quantized") for key in row.zero):
        found.append("QuantizerBuilder")
    return tuple(found)


def _build_op(name: str) -> None:
    start = time.monotonic()
    from deepspeed.ops import op_builder

    getattr(op_builder, name)().load()
    say(f"{name}: {time.monotonic() - start:.1f} s")


def _updates(fd: int, deadline: float) -> Iterator[dict[str, Any]]:
    """Yield what a child reports until it closes its end, says its status, or time is up."""
    waiting = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([fd], [], [], left)[0]:
            return
        chunk = os.read(fd, 1 << 16)
        if not chunk:
            return
        *lines, waiting = (waiting + chunk).split(b"\n")
        for text in lines:
            update: dict[str, Any] = json.loads(text)
            yield update
            if "status" in update:
                return


def _wait(pid: int, deadline: float) -> int:
    """Wait for a child, ending it at the deadline; returns its exit code."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            _kill_group(pid)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(0.02)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _tail(path: Path, num_lines: int) -> str:
    if not path.is_file():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-num_lines:])
