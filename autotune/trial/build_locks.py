"""Locks that a killed compiler left behind: every later build waits for them forever."""

import contextlib
import math
import os
import time
from pathlib import Path

_MOUNTS = Path("/proc/mounts")


_SHARED = frozenset({"beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "wekafs"})
"""Filesystems on which another machine may hold a lock, which is not visible here."""
_LONGEST_BUILD_S = 1800.0


def remove_stale_locks() -> tuple[Path, ...]:
    """Remove the stale locks of torch's extension builds; return them."""
    stale = stale_locks()
    for lock in stale:
        lock.unlink(missing_ok=True)
    return stale


def stale_locks() -> tuple[Path, ...]:
    """Return the locks that no process of this machine holds open.

    torch takes a lock by creating a file, which outlives a killed rank; it keeps the file open
    while it builds. Where another machine could be building, a lock is stale once it is older than
    any build.
    """
    locks = list(_build_root().glob("**/lock"))
    if not locks:
        return ()
    held = _open_files()
    youngest = time.time() - _LONGEST_BUILD_S if _is_shared(_build_root()) else math.inf
    return tuple(
        lock for lock in locks if str(lock.resolve()) not in held and _made_at(lock) < youngest
    )


def _is_shared(folder: Path) -> bool:
    """Return whether a folder is on a network filesystem."""
    mounts = [line.split() for line in _MOUNTS.read_text(encoding="utf-8").splitlines()]
    here = folder.resolve()
    found = [(len(m[1]), m[2]) for m in mounts if here.is_relative_to(m[1])]
    return max(found)[1] in _SHARED if found else False


def _made_at(lock: Path) -> float:
    try:
        return lock.stat().st_mtime
    except FileNotFoundError:
        return math.inf  # just released


def _build_root() -> Path:
    from torch.utils.cpp_extension import get_default_build_root

    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())


def _open_files() -> set[str]:
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # closed, or of another user
            found.add(str(link.readlink()))
    return found
