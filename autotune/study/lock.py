"""One driver per study: a second one would treat running trials as those of a dead driver."""

import errno
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from autotune.errors import StoreError

_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK})
"""A file system without locks, such as Lustre mounted without them: a run needs no lock there."""
_WAIT_S = 0.2
"""Time for a driver that is ending to release the lock."""


@contextmanager
def study_lock(folder: Path) -> Iterator[None]:
    """Hold a study while the context lasts; the kernel releases it if this process is killed.

    It excludes drivers that see the same folder. Drivers of other machines that share the database,
    but not the folder, are not excluded, and none is on a file system without locks.

    Args:
        folder: the study's, which need not exist yet; the lock is a file beside it.

    Raises:
        StoreError: another process holds the lock, or the file cannot be created.
    """
    path = folder.parent / f".{folder.name}.lock"
    is_new = not folder.parent.exists()
    lock = FileLock(path, timeout=_WAIT_S, fallback_to_soft=False)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _acquire(lock)
        path.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
    except Timeout as error:
        raise StoreError(
            f"--study {folder.name}: locked by another run ({_holder(path)}); wait until it ends, "
            "or choose another name"
        ) from error
    except OSError as error:
        raise StoreError(f"--study {folder.name}: cannot lock {path}: {error}") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()
        if is_new:
            with suppress(OSError):  # the study is there now
                folder.parent.rmdir()


def _acquire(lock: FileLock) -> None:
    try:
        lock.acquire()
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _holder(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") or "it has just started"
    except OSError:
        return "it has just ended"
