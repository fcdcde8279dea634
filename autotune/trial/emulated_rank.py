"""Emulates one rank of N on one device: the process group, and patches of DeepSpeed.

The other ranks do not exist. A gather repeats this rank's part, a reduction keeps this rank's
numbers; both take the time that real links would need. Shapes, and so memory and kernels, are those
of a real rank; losses and gradients are not.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import deepspeed
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch._C._distributed_c10d import HashStore

from autotune.predict.links.communication import Group, Links, collective_s
from autotune.trial.spec import Emulation, Place
from autotune.trial.timed_group import group

_SMALL_SCALE = 1.0
_NORM_CHECK = "is_invalid_grad_norm"


def place_of(emulation: Emulation, place: Place) -> Place:
    """Return the place of the emulated rank in its world, on the device of `place`."""
    return replace(
        place,
        rank=emulation.rank,
        # DeepSpeed selects the device by it, and there is only one.
        local_rank=0,
        world_size=emulation.world_size,
        local_world_size=emulation.local_world_size,
    )


def join(emulation: Emulation) -> None:
    """Enter a process group of `world_size` ranks of which only this one exists."""
    group.register(_collective_time(emulation))
    dist.init_process_group(
        group.BACKEND,
        store=HashStore(),
        rank=emulation.rank,
        world_size=emulation.world_size,
    )
    deepspeed.init_distributed(group.BACKEND, dist_init_required=False)
    # ZeRO++ forms its groups by the devices that it sees on the node.
    get_accelerator().device_count = lambda: emulation.local_world_size


def _collective_time(emulation: Emulation) -> group.CollectiveTime:
    """Return the function that gives the time of a collective."""
    if emulation.links is None:
        return lambda _: 0.0
    links = Links.from_json(emulation.links)

    def seconds(collective: group.Collective) -> float:
        shape = Group.of(collective.ranks, local_ranks=emulation.local_world_size)
        return collective_s(collective.kind, collective.num_bytes, shape, links)

    return seconds


def take_every_step(optimizer: Any) -> None:
    """Prevent DeepSpeed's optimizer from skipping a step because of an overflow.

    Gradients that were not communicated may overflow, and a skipped step is faster and allocates
    less than a real one. The checks run, since they take time and memory too. fp16 starts with a
    small loss scale, so that numbers stay finite for longer.
    """
    checker = getattr(optimizer, "overflow_checker", None)
    for owner in (optimizer, checker):
        for name in ("has_overflow", "check_using_norm"):
            if hasattr(owner, name):
                setattr(owner, name, _never(getattr(owner, name)))
    # A global norm that is not finite counts as an overflow as well.
    for module in {sys.modules[kind.__module__] for kind in type(optimizer).__mro__}:
        if hasattr(module, _NORM_CHECK):
            setattr(module, _NORM_CHECK, _never(getattr(module, _NORM_CHECK)))
    for name in ("loss_scaler", "loss_scale_config"):
        scaler = getattr(optimizer, name, None)
        if scaler is not None:
            scaler.cur_scale = min(scaler.cur_scale, _SMALL_SCALE)


def slow_down_host(optimizer: Any, slowdown: float, *, wait: Callable[[], None]) -> None:
    """Make each step of an offloaded optimizer take as long as with all ranks of the node.

    The whole step is slowed, not only CPUAdam: gradients are scaled on the CPU too, and weights are
    copied from pageable memory, which takes a core. All of it depends on the memory bandwidth that
    the ranks share.

    Args:
        optimizer: DeepSpeed's.
        slowdown: the factor.
        wait: returns when the device is idle, so that its work counts once.
    """
    if slowdown <= 1.0:
        return
    step = optimizer.step

    def slower_step(*args: Any, **kwargs: Any) -> Any:
        wait()
        began = time.perf_counter()
        result = step(*args, **kwargs)
        wait()
        time.sleep((time.perf_counter() - began) * (slowdown - 1.0))
        return result

    optimizer.step = slower_step


def _never(check: Callable[..., Any]) -> Callable[..., bool]:
    def checked(*args: Any, **kwargs: Any) -> bool:
        check(*args, **kwargs)
        return False

    return checked
