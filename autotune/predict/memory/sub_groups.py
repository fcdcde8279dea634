"""Stage 3 steps the rank's elements in sub-groups; with offload each has its host buffers."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.predict.training import Training


@dataclass(frozen=True, slots=True)
class SubGroup:
    """Elements of this rank that are stepped at once."""

    elements: int
    on_device: bool
    """Whether its states stay on the GPU: always without offload, in part with a ratio."""


def sub_groups(
    training: Training, shards: Sequence[int], trainable: Sequence[int]
) -> list[SubGroup]:
    """Cut the rank's shards at whole parameters, once `sub_group_size` is reached.

    After `_create_fp16_sub_groups` and, for the ratio, `_create_fp32_partitions` in stage3.py.
    """
    limit = training.zero.sub_group_size
    total = sum(shards[k] for k in trainable)
    sizes: list[int] = []
    if limit >= total:
        sizes = [total]
    else:
        size = 0
        for k in trainable:
            size += shards[k]
            if size >= limit or k == trainable[-1]:
                sizes.append(size)
                size = 0
    offload = training.zero.offload_optimizer
    staying = len(sizes) if not offload.enabled else int((1 - offload.ratio) * len(sizes))
    return [SubGroup(size, index < staying) for index, size in enumerate(sizes)]
