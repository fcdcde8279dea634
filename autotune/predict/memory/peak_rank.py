"""Finds the rank of a job that needs the most memory.

Stage 2 frees every gradient outside its own partition. Backward starts with the model's last
layers, while most activations are alive: they are alive together with the last rank's gradients,
while those of rank 0 appear when the activations are freed. At the other stages all ranks need the
same: stage 1 keeps all gradients until backward ends, stage 3 shards every tensor.
"""

from collections.abc import Sequence

from autotune.predict.memory.flat_groups import make_groups
from autotune.predict.program.events import Parameter
from autotune.predict.training_job import Training


def peak_ranks(training: Training, parameters: Sequence[Parameter]) -> tuple[int, ...]:
    """Return the ranks of which one needs the most, two or three at stage 2.

    These are the last one; the one whose partition overlaps the largest parameters, whose gradients
    it keeps whole; and rank 0, whose part of the embedding may need the largest temporaries.
    """
    world_size = training.world_size
    if training.zero.stage != 2 or world_size == 1:
        return (0,)
    elements = [p.num_elements for p in parameters]
    touched = [0] * world_size
    for group in make_groups(training, parameters, elements):
        if group.partitions < world_size:
            continue  # experts: every few ranks hold the same part
        for k in group.members:
            first = group.starts[k] // group.partition_elements
            last = (group.starts[k] + elements[k] - 1) // group.partition_elements
            for rank in range(first, last + 1):
                touched[rank] += elements[k]
    most = touched.index(max(touched))
    return tuple(sorted({0, most, world_size - 1}))
