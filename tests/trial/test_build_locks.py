import os
import time
from pathlib import Path

import pytest

from autotune.trial import build_locks
from autotune.trial.build_locks import remove_stale_locks


@pytest.fixture
def build_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    folder = tmp_path / "cpu_adam"
    folder.mkdir()
    return folder


def test_a_lock_without_a_holder_is_removed(build_folder: Path) -> None:
    (build_folder / "lock").touch()
    (build_folder / "build.ninja").touch()
    assert remove_stale_locks() == (build_folder / "lock",)
    assert [path.name for path in build_folder.iterdir()] == ["build.ninja"]


def test_a_lock_of_a_running_build_stays(build_folder: Path) -> None:
    with (build_folder / "lock").open("w"):
        remove_stale_locks()
        assert (build_folder / "lock").exists()


def test_without_any_build_there_is_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "none"))
    remove_stale_locks()
    assert not (tmp_path / "none").exists()


def test_on_a_network_filesystem_another_machine_may_hold_a_young_lock(
    build_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / ext4 rw 0 0\nserver:/home {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(build_locks, "_MOUNTS", mounts)
    lock = build_folder / "lock"
    lock.touch()
    assert remove_stale_locks() == ()
    hour_ago = time.time() - 3600
    os.utime(lock, (hour_ago, hour_ago))
    assert remove_stale_locks() == (lock,)
