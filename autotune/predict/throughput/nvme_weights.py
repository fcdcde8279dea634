"""Offloaded weights on the NVMe drive, and those that stay in host memory."""

from autotune.predict.memory.sub_groups import sub_groups
from autotune.predict.memory.summary import lay_out
from autotune.predict.training_job import Training


def share_on_drive(training: Training) -> float:
    """Return the share of a rank's weights that are read from NVMe whenever they are gathered.

    Callers assume the same share for every gather.
    """
    if training.zero.offload_param.device != "nvme":
        return 0.0
    return 1 - _kept_in_memory(training) / sum(lay_out(training).shards)


def written_elements(training: Training) -> int:
    """Return the elements of the weights that a rank writes to NVMe after their update."""
    if training.zero.offload_param.device != "nvme":
        return 0
    return lay_out(training).partition - _kept_in_memory(training)


def _kept_in_memory(training: Training) -> int:
    """Return the elements of a rank that `max_in_cpu` keeps in host memory.

    After `_create_fp16_partitions_with_defragmentation` in stage3.py: of one parameter group, the
    first whole sub-groups that fit; frozen weights do not stay.
    """
    layout = lay_out(training)
    kept = 0
    for group in sub_groups(training, layout.shards, layout.trainable):
        if kept + group.elements > training.zero.offload_param.max_in_cpu:
            break
        kept += group.elements
    return kept
