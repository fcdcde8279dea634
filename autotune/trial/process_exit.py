"""Makes sure that no process outlives its owner. Linux only."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int, signum: signal.Signals) -> None:
    """Make the kernel send this process a signal when its parent ends.

    The signal follows the parent's *thread*: the parent must fork from its main thread.

    Args:
        parent_pid: the parent before the fork; if it has ended already, exit now.
        signum: the signal to send.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signum) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os._exit(1)


def kill_group(pid: int) -> None:
    """Kill a rank, which leads a process group, and what it started, such as a compiler."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
