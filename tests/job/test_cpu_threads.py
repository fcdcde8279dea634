"""The CPU threads of a rank, and their source."""

from typing import Any

import pytest

from autotune.errors import JobError
from autotune.job.cpu_threads import (
    RankLauncher,
    assumed_cpu_threads,
    launch_commands,
    resolve_cpu_threads,
    threads_by_launcher,
)
from autotune.job.job import Job

SOURCES: dict[str, Any] = {
    "given": 5,
    "environment": {"OMP_NUM_THREADS": "7"},
    "launcher": RankLauncher.ACCELERATE,
}


@pytest.mark.parametrize(
    ("left_out", "count", "origin"),
    [
        ((), 5, "as given"),
        (("given",), 7, "OMP_NUM_THREADS of the environment"),
        (("given", "environment"), 1, "set by accelerate"),
        (tuple(SOURCES), 8, "a fair share of the node's cores"),
    ],
)
def test_the_first_source_that_is_known_decides(
    left_out: tuple[str, ...], count: int, origin: str
) -> None:
    sources = {name: value for name, value in SOURCES.items() if name not in left_out}
    found = resolve_cpu_threads(cores=64, local_ranks=8, **sources)
    assert (found.count, found.origin) == (count, origin)


@pytest.mark.parametrize(
    ("launcher", "local_ranks", "threads"),
    [
        (RankLauncher.TORCHRUN, 1, 64),
        (RankLauncher.TORCHRUN, 2, 1),
        (RankLauncher.ACCELERATE, 1, 1),
        (RankLauncher.ACCELERATE, 8, 1),
        (RankLauncher.DEEPSPEED, 1, 64),
        (RankLauncher.DEEPSPEED, 8, 64),
    ],
)
def test_what_launchers_set(launcher: RankLauncher, local_ranks: int, threads: int) -> None:
    assert threads_by_launcher(launcher, cores=64, local_ranks=local_ranks) == threads


@pytest.mark.parametrize(
    ("text", "count"),
    [("4", 4), (" 4 ", 4), ("4,2", 4), ("", 16), ("0", 16), ("-1", 16), ("x", 16)],
)
def test_a_value_that_openmp_ignores_decides_nothing(text: str, count: int) -> None:
    environment = {"OMP_NUM_THREADS": text}
    assert resolve_cpu_threads(cores=32, local_ranks=2, environment=environment).count == count


def test_a_share_is_never_less_than_one() -> None:
    assert resolve_cpu_threads(cores=2, local_ranks=8).count == 1


@pytest.mark.parametrize(
    ("given", "launcher", "text"),
    [
        (None, None, "16 CPU threads a rank (a fair share of the node's cores, 16 for each rank"),
        (None, RankLauncher.TORCHRUN, "1 CPU thread a rank (set by torchrun)"),
        (None, RankLauncher.DEEPSPEED, "128 CPU threads a rank (set by deepspeed, 16 for each"),
        (2, RankLauncher.TORCHRUN, "2 CPU threads a rank (as given)"),
    ],
)
def test_an_assumed_number_of_cores_is_named(
    given: int | None, launcher: RankLauncher | None, text: str
) -> None:
    found = str(assumed_cpu_threads(local_ranks=8, given=given, launcher=launcher))
    assert found.startswith(text)
    assert found.endswith("assumed)") == ("16 for each" in text)


def test_less_than_one_thread_is_refused() -> None:
    assert Job(cpu_threads=1).cpu_threads == 1
    with pytest.raises(JobError, match="--cpu-threads 0: must be at least 1"):
        Job(cpu_threads=0)


def test_every_launcher_has_its_command() -> None:
    commands = launch_commands(8)
    assert set(commands) == set(RankLauncher)
    assert all("8" in command for command in commands.values())
