"""One driver at a time: two would each take the other's running trials for those of a dead one."""

import errno
import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autotune.errors import StoreError

_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK})
"""A file system without locks, such as Lustre where nobody asked for them: a run must not fail for
want of one."""


@contextmanager
def study_lock(folder: Path) -> Iterator[None]:
    """Hold a study while the context lasts; the kernel lets go of it if this process is killed.

    Only of drivers that see the same folder: those of other machines that share a database with
    this one, but no folder, are not kept out, and nobody is where the file system has no locks.

    Args:
        folder: the study's, which need not exist yet; the lock is a file beside it.

    Raises:
        StoreError: another process has it, or it cannot be made.
    """
    path = folder.parent / f".{folder.name}.lock"
    is_new = not folder.parent.exists()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        held = _held(path)
    except OSError as error:
        raise StoreError(f"--study {folder.name}: cannot lock {path}: {error}") from error
    if held is None:
        raise StoreError(
            f"--study {folder.name}: another run is at it ({_holder(path)}); wait until it "
            "ends, or choose another name"
        )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(held)
        if is_new:
            with suppress(OSError):  # the study is there now
                folder.parent.rmdir()


def _held(path: Path) -> int | None:
    """Return a descriptor of the locked file; None if somebody else has it."""
    while True:
        # Closed in whatever this process starts, so that no rank holds it on.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                raise
        if _is_still(path, descriptor):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {platform.node()}".encode())
            return descriptor
        # Its holder has removed it meanwhile: nobody else would see this lock.
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") or "it has just begun"
    except OSError:
        return "it has just ended"
