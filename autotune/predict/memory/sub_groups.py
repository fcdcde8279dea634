"""Stage 3 steps the rank's elements in sub-groups; with offload each has its host buffers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from autotune.predict.training_job import Training


@dataclass(frozen=True, slots=True)
class SubGroup:
    """Elements of this rank that are stepped at once."""

    elements: int
    on_device: bool
    """Whether its states stay on the GPU: always without offload, in part with a ratio."""


def sub_groups(
    training: Training, shards: Sequence[int], trainable: Sequence[int]
) -> list[SubGroup]:
    """Divide the rank's shards at whole parameters, when `sub_group_size` is reached.

    After `_create_fp16_sub_groups` and, for the ratio, `_create_fp32_partitions` in stage3.py.
    """
    sizes = _cut(tuple(shards[k] for k in trainable), training.zero.sub_group_size)
    offload = training.zero.offload_optimizer
    staying = len(sizes) if not offload.enabled else int((1 - offload.ratio) * len(sizes))
    return [SubGroup(size, index < staying) for index, size in enumerate(sizes)]


@lru_cache(maxsize=64)
def _cut(shards: tuple[int, ...], limit: int) -> list[int]:
    if limit >= sum(shards):
        return [sum(shards)]
    sizes: list[int] = []
    size = 0
    for index, shard in enumerate(shards):
        size += shard
        if size >= limit or index == len(shards) - 1:
            sizes.append(size)
            size = 0
    return sizes
