"""Offloaded weights that live on the NVMe drive, and those that stay in host memory before it."""

from autotune.predict.memory.sub_groups import sub_groups
from autotune.predict.memory.summary import lay_out
from autotune.predict.training import Training


def share_on_drive(training: Training) -> float:
    """Return the share of a rank's weights that are read from NVMe whenever they are gathered.

    After `_create_fp16_partitions_with_defragmentation` in stage3.py: of one parameter group, the
    first whole sub-groups that fit into `max_in_cpu` stay in host memory; frozen weights do not.
    Whoever asks takes the share of every gather to be the same.
    """
    offload = training.zero.offload_param
    if offload.device != "nvme":
        return 0.0
    layout = lay_out(training)
    staying = 0
    for group in sub_groups(training, layout.shards, layout.trainable):
        if staying + group.elements > offload.max_in_cpu:
            break
        staying += group.elements
    return 1 - staying / sum(layout.shards)
