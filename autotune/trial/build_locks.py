"""Locks that a killed compiler left behind: every later build waits for ever on them."""

import contextlib
import os
from pathlib import Path


def remove_stale_locks() -> None:
    """Remove the locks of torch's extension builds that no process of this machine holds open.

    torch takes a lock by creating a file, which outlives a killed rank; it keeps the file open
    while it builds.
    """
    held: set[str] | None = None
    for lock in _build_root().glob("**/lock"):
        if held is None:
            held = _open_files()
        if str(lock.resolve()) not in held:
            lock.unlink(missing_ok=True)


def _build_root() -> Path:
    from torch.utils.cpp_extension import get_default_build_root

    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())


def _open_files() -> set[str]:
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # closed, or of another user
            found.add(str(link.readlink()))
    return found
