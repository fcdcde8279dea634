"""DeepSpeed's compiled ops, and what compiles them."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.doctor.check import Check, fail, ok, warn
from autotune.doctor.installation import Installation, Op
from autotune.trial import cuda_arch_list

_NEEDED = ("fused_adam", "cpu_adam")
"""The ops of the default study: Adam on the device, and on the CPU for offload."""
_UNLESS = "or use torch's optimizer: optimizer.params.torch_adam"
_CURES = {
    "nvcc": "install the CUDA toolkit of torch's CUDA version and set CUDA_HOME",
    "g++": "install it (apt install g++)",
    "ninja": "install it (pip install ninja)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A program that builds ops."""

    name: str
    version: str | None
    """None where it is missing or does not start."""


def read_compilers(cuda_home: str | None) -> tuple[Compiler, ...]:
    """Look for nvcc, g++ and ninja where torch's builder looks, and ask for their versions."""
    nvcc = str(Path(cuda_home) / "bin" / "nvcc") if cuda_home else "nvcc"
    return tuple(
        Compiler(name=name, version=_version(command))
        for name, command in (
            ("nvcc", nvcc),
            ("g++", os.environ.get("CXX", "g++")),
            ("ninja", "ninja"),
        )
    )


def check_compilers(
    compilers: tuple[Compiler, ...], torch: Installation, *, ops_wait: bool
) -> Iterator[Check]:
    """The compilers exist, and nvcc has torch's CUDA version.

    Args:
        compilers: those found.
        torch: the installation that they build for.
        ops_wait: whether an op that every study needs is not built yet.
    """
    say = fail if ops_wait else warn
    for compiler in compilers:
        if compiler.version is None:
            yield say(compiler.name, "not found; ops cannot be compiled", _CURES[compiler.name])
        elif compiler.name == "nvcc" and not _same_major(compiler.version, torch.torch_cuda):
            yield say(
                "nvcc",
                f"{compiler.version}, and torch was built with CUDA {torch.torch_cuda}: torch "
                "refuses to build with another major version",
                _CURES["nvcc"],
            )
        else:
            yield ok(compiler.name, compiler.version)


def check_ops(torch: Installation, compilers: tuple[Compiler, ...]) -> Iterator[Check]:
    """Each op is built, or can be built."""
    missing = {compiler.name for compiler in compilers if compiler.version is None}
    for op in torch.ops:
        yield _check_op(op, missing if op.needs_nvcc else missing - {"nvcc"}, torch)


def ops_wait(torch: Installation) -> bool:
    """Return whether an op that every study needs is not built yet."""
    return any(op.name in _NEEDED and not op.built for op in torch.ops)


def _check_op(op: Op, missing: set[str], torch: Installation) -> Check:
    name = f"op {op.name}"
    say = fail if op.name in _NEEDED else warn
    if op.built and op.why is None:
        return ok(name, "built")
    if op.built:
        return say(
            name,
            f"built, but broken: {op.why}",
            f"remove it to build it again: rm -r {_folder_of(op, torch)}",
        )
    if op.name == "async_io" and op.why is not None:
        return warn(
            name,
            "libaio's headers are missing; only offload to NVMe needs them",
            "apt install libaio-dev",
        )
    if op.why is not None:
        return say(name, f"cannot be built: {op.why}", _UNLESS)
    if missing:
        absent = " and ".join(sorted(missing))
        return say(name, f"cannot be built without {absent}", f"{_CURES[min(missing)]}, {_UNLESS}")
    return ok(name, "not built yet; a study that needs it builds it first, for about a minute")


def check_locks(torch: Installation, *, removed: bool) -> Check:
    """No killed compiler has left a lock, which the next build would wait for forever."""
    locks = torch.stale_locks
    if not locks:
        return ok("build locks", "no stale locks")
    if removed:
        return ok("build locks", f"removed {len(locks)}: {', '.join(locks)}")
    return warn(
        "build locks",
        f"left by a compiler that has ended: {', '.join(locks)}",
        "remove them with --fix; `autotune run` does so too",
    )


def check_arch_list(environment: Mapping[str, str]) -> Check:
    """DeepSpeed can read the list of architectures to build for."""
    given = environment.get(cuda_arch_list.VARIABLE, "")
    if cuda_arch_list.is_readable(given):
        return ok("arch list", given.strip() or "not set: ops are built for the devices here")
    cured = cuda_arch_list.readable(given)
    cure = (
        f"export {cuda_arch_list.VARIABLE}='{cured}'"
        if cured
        else f"unset {cuda_arch_list.VARIABLE}"
    )
    return warn(
        "arch list",
        f"{cuda_arch_list.VARIABLE}={given}: DeepSpeed's builder fails on it",
        f"{cure}; `autotune run` does so for its ranks",
    )


def _version(command: str) -> str | None:
    """Return the first version number that a program prints."""
    path = shutil.which(command)
    if path is None:
        return None
    try:
        printed = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"release (\d+\.\d+)", printed.stdout) or re.search(
        r"(\d+\.\d+[\d.]*)", printed.stdout
    )
    return found.group(1).rstrip(".") if found else printed.stdout.strip()[:40]


def _same_major(version: str, cuda: str | None) -> bool:
    return cuda is None or version.partition(".")[0] == cuda.partition(".")[0]


def _folder_of(op: Op, torch: Installation) -> str:
    found = next(Path(torch.extensions).glob(f"**/{op.name}/{op.name}.so"), None)
    return str(found.parent if found else Path(torch.extensions) / op.name)
