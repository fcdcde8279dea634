"""Facts from files as the kernel writes them under either version of cgroups."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from autotune.pool import machine

MIB = 2**20
Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes a file below the roots of cgroups and of /proc."""
    monkeypatch.setattr(machine, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "_PROC", tmp_path / "proc")

    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")

    return write


def test_version_2_counts_kills_of_its_own_group(write: Write) -> None:
    write("proc/self/cgroup", "0::/slurm/job_7\n")
    write("proc/vmstat", "oom_kill 99\n")
    write("cgroup/slurm/job_7/memory.events", "low 0\noom 4\noom_kill 3\noom_group_kill 0\n")
    assert machine.num_oom_kills() == 3


def test_version_1_does_too(write: Write) -> None:
    write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n")
    write("cgroup/memory/docker/abc/memory.oom_control", "under_oom 0\noom_kill 2\n")
    assert machine.num_oom_kills() == 2


def test_in_a_container_the_root_of_the_mount_is_its_own_group(write: Write) -> None:
    write("proc/self/cgroup", "0::/../../kubepods/pod1\n")
    write("cgroup/memory.events", "oom_kill 1\n")
    assert machine.num_oom_kills() == 1
    write("proc/self/cgroup", "4:memory:/kubepods/not/mounted/here\n")
    write("cgroup/memory/memory.oom_control", "oom_kill 5\n")
    assert machine.num_oom_kills() == 5


def test_without_any_cgroup_the_whole_machine_counts(write: Write) -> None:
    write("proc/self/cgroup", "0::/\n")
    write("proc/vmstat", "pgfault 12\noom_kill 6\n")
    assert machine.num_oom_kills() == 6


def test_without_a_counter_no_kill_is_reported(write: Write) -> None:
    del write  # the roots are empty
    assert machine.num_oom_kills() == 0


def test_the_least_limit_of_a_group_and_those_above_it_counts(write: Write) -> None:
    total = psutil.virtual_memory().total
    write("proc/self/cgroup", "0::/slurm/job_7\n")
    write("cgroup/slurm/job_7/memory.max", "max\n")
    assert machine.host_memory_bytes() == total
    write("cgroup/slurm/memory.max", f"{512 * MIB}\n")
    write("cgroup/memory.max", f"{700 * MIB}\n")
    assert machine.host_memory_bytes() == 512 * MIB


def test_a_huge_limit_of_version_1_is_unlimited(write: Write) -> None:
    write("proc/self/cgroup", "4:memory:/\n")
    write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert machine.host_memory_bytes() == psutil.virtual_memory().total
