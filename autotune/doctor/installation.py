"""Facts about torch and DeepSpeed, read in a separate process."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import HardwareError
from autotune.serialization import Serializable

_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One of DeepSpeed's compiled ops."""

    name: str
    built: bool
    """Whether its library exists; with `why` it cannot be loaded."""
    needs_nvcc: bool
    why: str | None
    """Why it cannot be loaded or built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation(Serializable):
    """torch and DeepSpeed on this machine."""

    torch: str
    torch_cuda: str | None
    """None for a torch without CUDA."""
    nccl: str | None
    archs: tuple[str, ...]
    """The architectures that torch's kernels were compiled for, such as `sm_90`."""
    capabilities: tuple[tuple[int, int], ...]
    """Of the devices that torch sees."""
    cuda_error: str | None
    """Why CUDA does not start."""
    cuda_home: str | None
    """The path of the CUDA toolkit, as torch's builder finds it."""
    extensions: str
    """The folder of the ops that are compiled at first use."""
    stale_locks: tuple[str, ...]
    """Found, or removed on request."""
    ops: tuple[Op, ...]


def ask_installation(
    device_kind: str, *, remove_locks: bool = False, ops: Sequence[str] = ()
) -> Installation:
    """Read the facts from torch and DeepSpeed.

    Args:
        device_kind: cuda or cpu.
        remove_locks: remove stale locks of the extension builds.
        ops: those to check; empty is all on CUDA and none on the CPU.

    Raises:
        HardwareError: they cannot be imported, or did not answer.
    """
    command = [sys.executable, "-m", "autotune.trial.ask_installation", device_kind, *ops]
    command += ["--remove-stale-locks"] if remove_locks else []
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise HardwareError(f"torch and DeepSpeed did not answer in {_TIMEOUT_S:.0f} s") from error
    if answer.returncode != 0:
        last = answer.stderr.strip().splitlines()[-1:] or [f"code {answer.returncode}"]
        raise HardwareError(f"torch or DeepSpeed cannot be imported: {last[0]}")
    return Installation.from_json(json.loads(answer.stdout))
