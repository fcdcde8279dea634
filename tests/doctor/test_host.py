import os
import resource
from pathlib import Path

import pytest

from autotune.doctor.check import Verdict
from autotune.doctor.host import (
    check_disk,
    check_host,
    check_memory,
    check_open_files,
    check_shared_memory,
)
from tests.doctor.installations import expect

MIB, GIB = 2**20, 2**30


@pytest.mark.parametrize(
    ("free_bytes", "verdict"),
    [(64 * MIB, Verdict.FAIL), (512 * MIB, Verdict.WARN), (8 * GIB, Verdict.OK)],
)
def test_dockers_shared_memory_is_too_small(free_bytes: int, verdict: Verdict) -> None:
    check = check_shared_memory(free_bytes)
    expect(check, verdict, "/dev/shm")
    if verdict is not Verdict.OK:
        assert "--shm-size" in check.line


@pytest.mark.parametrize(
    ("limit_bytes", "verdict"),
    [(GIB, Verdict.FAIL), (4 * GIB, Verdict.WARN), (64 * GIB, Verdict.OK)],
)
def test_little_memory_is_reported(limit_bytes: int, verdict: Verdict) -> None:
    expect(check_memory(limit_bytes), verdict, "GiB for all ranks")


@pytest.mark.parametrize(
    ("hard", "verdict"),
    [
        (512, Verdict.FAIL),
        (4_096, Verdict.WARN),
        (65_536, Verdict.OK),
        (resource.RLIM_INFINITY, Verdict.OK),
    ],
)
def test_the_hard_limit_of_open_files_counts(hard: int, verdict: Verdict) -> None:
    expect(check_open_files(256, hard), verdict, "256 open files")


def test_room_is_judged_where_a_folder_would_be_made(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"

    def judged(needed_bytes: int, wanted_bytes: int) -> Verdict:
        return check_disk(
            "disk", folder, needed_bytes=needed_bytes, wanted_bytes=wanted_bytes
        ).verdict

    assert judged(1, 2) is Verdict.OK
    assert judged(1, 2**60) is Verdict.WARN
    assert judged(2**60, 2**60) is Verdict.FAIL
    assert not folder.exists()


def test_a_folder_without_permission_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)  # root may write everywhere
    expect(
        check_disk("disk", tmp_path / "a", needed_bytes=1, wanted_bytes=1),
        Verdict.FAIL,
        "cannot be written to",
        f"permissions of {tmp_path}",
    )


def test_this_host_is_checked_whole() -> None:
    names = [check.name for check in check_host("/tmp")]
    assert names == [
        "host memory",
        "shared memory",
        "open files",
        "disk: studies",
        "disk: temporary",
        "disk: extensions",
    ]
    assert len(list(check_host(None))) == 5
