"""One device plays rank 0 of N: the process group, and what DeepSpeed must not conclude from it.

The other ranks do not exist. Collectives return at once: a gather repeats this rank's part, a
reduction keeps this rank's numbers. Shapes, and so memory and kernels, are those of a real rank;
losses and gradients are not.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import deepspeed
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch.testing._internal.distributed.fake_pg import FakeStore

from autotune.trial import lone_group
from autotune.trial.spec import Emulation, Place, TrialSpec

_MANY_RANKS = 64
"""Up to here torch's own group was compared with real GPUs, and costs next to nothing."""
_SMALL_SCALE = 1.0
_NORM_CHECK = "is_invalid_grad_norm"


def place_of_rank_0(emulation: Emulation, place: Place) -> Place:
    """Return where rank 0 of the emulated world stands, on the device of `place`."""
    return replace(
        place,
        rank=0,
        local_rank=0,
        world_size=emulation.world_size,
        local_world_size=emulation.local_world_size,
    )


def join(spec: TrialSpec, place: Place) -> None:
    """Enter a process group of which only this rank exists; collectives return at once.

    Args:
        spec: the trial.
        place: rank 0 of the emulated world (`place_of_rank_0`).
    """
    backend = "fake"
    if place.world_size > _MANY_RANKS or _quantizes_weights(spec):
        backend = lone_group.BACKEND
        lone_group.register()
    dist.init_process_group(
        backend, store=FakeStore(), rank=place.rank, world_size=place.world_size
    )
    deepspeed.init_distributed(backend, dist_init_required=False)
    # ZeRO++ cuts its groups by the devices that it sees on the node.
    get_accelerator().device_count = lambda: place.local_world_size


def _quantizes_weights(spec: TrialSpec) -> bool:
    zero = spec.ds_config.get("zero_optimization", {})
    return bool(
        zero.get("zero_quantized_weights") or zero.get("zero_quantized_nontrainable_weights")
    )


def take_every_step(optimizer: Any) -> None:
    """Have DeepSpeed's optimizer never skip a step for an overflow.

    What was not communicated may overflow, and a skipped step is faster and allocates less than a
    real one. The checks themselves run, since they take time and memory too. fp16 begins with a
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


def _never(check: Callable[..., Any]) -> Callable[..., bool]:
    def checked(*args: Any, **kwargs: Any) -> bool:
        check(*args, **kwargs)
        return False

    return checked
