"""CPU threads of a rank (`OMP_NUM_THREADS`): their sources, and the defaults of launchers.

An offloaded optimizer steps on these threads, so its speed depends on them. Sources: torch 2.13,
distributed/run.py: `config_from_args`; accelerate 1.15, commands/launch.py:
`_validate_launch_command`; DeepSpeed 0.19.8, launcher/launch.py: `main`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

VARIABLE = "OMP_NUM_THREADS"
FAIR_SHARE = "a fair share of the node's cores"
ASSUMED_CORES = 16
"""Cores per rank of a node that is not this machine: as on the measured H200 hosts."""


class RankLauncher(StrEnum):
    """The program that starts the ranks of a job."""

    TORCHRUN = "torchrun"
    ACCELERATE = "accelerate"
    """`accelerate launch`."""
    DEEPSPEED = "deepspeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuThreads:
    """The CPU threads of a rank, and the source of their number."""

    count: int
    origin: str
    """An option, a file's key, `OMP_NUM_THREADS`, a launcher or a fair share, for a reader."""

    def __str__(self) -> str:
        """Return the number and its source for a reader.

        Example:
            >>> str(CpuThreads(count=1, origin="torchrun"))
            '1 CPU thread a rank (torchrun)'
        """
        return f"{self.count} CPU thread{'' if self.count == 1 else 's'} a rank ({self.origin})"


def fair_share(cores: int, local_ranks: int) -> int:
    """Return the cores of a node divided by its ranks, at least 1.

    Example:
        >>> fair_share(30, 4), fair_share(2, 8)
        (7, 1)
    """
    return max(cores // local_ranks, 1)


def threads_by_launcher(launcher: RankLauncher, *, cores: int, local_ranks: int) -> int:
    """Return the threads of a rank where the user sets nothing.

    torchrun sets 1 where a node has several ranks, Accelerate always. DeepSpeed's launcher sets
    nothing without `--bind_cores_to_rank`, so every rank uses all cores of its node.

    Args:
        launcher: what starts the ranks.
        cores: of a node.
        local_ranks: ranks on it.
    """
    if launcher is RankLauncher.ACCELERATE:
        return 1
    if launcher is RankLauncher.TORCHRUN and local_ranks > 1:
        return 1
    return cores


def resolve_cpu_threads(
    *,
    cores: int,
    local_ranks: int,
    given: int | None = None,
    environment: Mapping[str, str] | None = None,
    launcher: RankLauncher | None = None,
) -> CpuThreads:
    """Return the CPU threads of a rank from the first source that states them.

    The order is that of the parameters from `given` on, then a fair share. Every launcher keeps an
    `OMP_NUM_THREADS` of the environment, so it precedes their defaults.

    Args:
        cores: of a node.
        local_ranks: ranks on it.
        given: `--cpu-threads`, the job file, or `num_cpu_threads_per_process` of an Accelerate
            config.
        environment: variables of the shell that starts the job; None if that is another shell.
        launcher: what starts the ranks; None is unknown.

    Example:
        >>> resolve_cpu_threads(cores=64, local_ranks=8).count
        8
        >>> resolve_cpu_threads(cores=64, local_ranks=8, launcher=RankLauncher.TORCHRUN).count
        1
    """
    if given is not None:
        return CpuThreads(count=given, origin="as given")
    if (count := _count_in(environment or {})) is not None:
        return CpuThreads(count=count, origin=f"{VARIABLE} of the environment")
    if launcher is not None:
        count = threads_by_launcher(launcher, cores=cores, local_ranks=local_ranks)
        return CpuThreads(count=count, origin=f"set by {launcher}")
    return CpuThreads(count=fair_share(cores, local_ranks), origin=FAIR_SHARE)


def assumed_cpu_threads(
    *, local_ranks: int, given: int | None, launcher: RankLauncher | None
) -> CpuThreads:
    """Return the CPU threads of a rank on another machine, with `ASSUMED_CORES` per rank.

    Args:
        local_ranks: ranks on a node.
        given: `--cpu-threads`.
        launcher: what starts the ranks; None is unknown.
    """
    cores = ASSUMED_CORES * local_ranks
    found = resolve_cpu_threads(
        cores=cores, local_ranks=local_ranks, given=given, launcher=launcher
    )
    if given is not None or found.count == 1:
        return found
    return replace(found, origin=f"{found.origin}, {ASSUMED_CORES} for each rank assumed")


def launch_commands(count: int | str) -> Mapping[RankLauncher, str]:
    """Return the shell command of each launcher that sets a number of threads."""
    setting = f"{VARIABLE}={count}"
    return {
        RankLauncher.TORCHRUN: f"{setting} torchrun ...",
        RankLauncher.ACCELERATE: f"accelerate launch --num_cpu_threads_per_process {count} ...",
        # It passes the variables of ~/.deepspeed_env to other nodes, and few of the shell's.
        RankLauncher.DEEPSPEED: f"export {setting}; deepspeed ... (several nodes: {setting} in "
        "~/.deepspeed_env)",
    }


def _count_in(environment: Mapping[str, str]) -> int | None:
    """Return `OMP_NUM_THREADS`, the outer level of a list; None where OpenMP would ignore it."""
    first = environment.get(VARIABLE, "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None
