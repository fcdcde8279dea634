"""One driver at a time."""

import errno
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.errors import StoreError
from autotune.study.lock import study_lock

_HOLDER = """
import sys
from pathlib import Path
from autotune.study.lock import study_lock
with study_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def _hold(folder: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_second_driver_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "studies/s"
    holder = _hold(folder)
    with (
        pytest.raises(StoreError, match=rf"--study s: locked by .* \(process {holder.pid} on "),
        study_lock(folder),
    ):
        pass
    holder.communicate("")
    with study_lock(folder):
        pass
    # Nothing of it stays, and nothing of the study was made.
    assert not folder.parent.exists() or list(folder.parent.iterdir()) == []


def test_one_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    holder = _hold(tmp_path / "s")
    holder.kill()
    holder.communicate()
    with study_lock(tmp_path / "s"):
        pass


def test_what_a_driver_starts_does_not_hold_its_study_on(tmp_path: Path) -> None:
    with study_lock(tmp_path / "s"):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child, study_lock(tmp_path / "s"):
        assert child.poll() is None
        child.kill()


def test_the_file_of_one_that_was_killed_names_the_next_holder(tmp_path: Path) -> None:
    (tmp_path / ".s.lock").write_text("process 4194304 on another-machine", encoding="utf-8")
    with study_lock(tmp_path / "s"):
        held_by = (tmp_path / ".s.lock").read_text(encoding="utf-8")
    assert held_by == f"process {os.getpid()} on {platform.node()}"
    assert list(tmp_path.iterdir()) == []


def test_one_process_holds_a_study_once(tmp_path: Path) -> None:
    with (
        study_lock(tmp_path / "s"),
        pytest.raises(StoreError, match=rf"\(process {os.getpid()} on "),
        study_lock(tmp_path / "s"),
    ):
        pass


def test_a_lock_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(StoreError, match=r"--study s: cannot lock .*\.s\.lock: "),
        study_lock(tmp_path / "file" / "s"),
    ):
        pass
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_file_system_without_locks_does_not_stop_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", flock)
    with study_lock(tmp_path / "s"):
        pass
