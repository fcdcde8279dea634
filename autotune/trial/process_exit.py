"""Making sure that no process outlives the one that answers for it. Linux only."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int, signum: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent ends.

    The signal follows the parent's *thread*: the parent must fork from its main thread.

    Args:
        parent_pid: the parent as it was before the fork; if it is gone already, exit now.
        signum: what to send.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signum) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os._exit(1)


def kill_group(pid: int) -> None:
    """Kill a rank with all that it started (a compiler, say); it leads its own process group."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
