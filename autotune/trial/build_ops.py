"""Builds DeepSpeed's compiled ops once, before any rank needs them.

Started by a slot as ``python -m autotune.trial.build_ops SLOT_PID OP...``. Writes JSON lines to
standard output: ``building`` before an op is compiled, ``built`` when it can be loaded, and
``failed`` with the compiler's last lines; then it ends. The output of compilers goes to standard
error.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from autotune.trial import process_exit, wire
from autotune.trial.build_locks import remove_stale_locks

BUILDERS = {
    "fused_adam": "FusedAdamBuilder",
    "cpu_adam": "CPUAdamBuilder",
    "fused_lamb": "FusedLambBuilder",
    "fused_lion": "FusedLionBuilder",
    "cpu_lion": "CPULionBuilder",
    "cpu_adagrad": "CPUAdagradBuilder",
    "async_io": "AsyncIOBuilder",
    "quantizer": "QuantizerBuilder",
}
"""DeepSpeed's builder of each op that training may load."""

_MAX_LINES = 12
SendEvent = Callable[..., None]


def build_ops(ops: Iterable[str], send_event: SendEvent, builder_of: Callable[[str], Any]) -> bool:
    """Build and load each op; return whether all can be loaded.

    Args:
        ops: DeepSpeed's names.
        send_event: called with the kind of an event and its content.
        builder_of: returns DeepSpeed's builder of an op.
    """
    for op in ops:
        began = time.monotonic()
        try:
            builder = builder_of(op)
            if not is_built(op):
                send_event("building", op=op)
            builder.load(verbose=False)
        except Exception as error:  # noqa: BLE001  compilers and linkers raise many types
            send_event("failed", op=op, why=last_lines(str(error)))
            return False
        send_event("built", op=op, seconds=time.monotonic() - began)
    return True


def is_built(op: str) -> bool:
    """Return whether an op was installed with DeepSpeed, or has been compiled here before."""
    from deepspeed.git_version_info import installed_ops
    from torch.utils.cpp_extension import _get_build_directory

    return (
        bool(installed_ops.get(op))
        or (Path(_get_build_directory(op, verbose=False)) / f"{op}.so").exists()
    )


def deepspeeds_builder(op: str) -> Any:
    """Return DeepSpeed's builder of an op for this accelerator."""
    from deepspeed.accelerator import get_accelerator

    return get_accelerator().create_op_builder(BUILDERS[op])


def last_lines(text: str) -> str:
    """Return the end of a compiler's output, where the errors are."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-_MAX_LINES:]) or "no message"


def main(slot_pid: int, ops: Iterable[str]) -> int:
    """Build the ops; return the exit code."""
    process_exit.die_with_parent(slot_pid, signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    answers = os.dup(1)
    os.dup2(2, 1)
    remove_stale_locks()

    def send_event(kind: str, **content: Any) -> None:
        wire.send(answers, kind, **content)

    return 0 if build_ops(ops, send_event, deepspeeds_builder) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
