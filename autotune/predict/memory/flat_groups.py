"""Parameter groups of stages 1 and 2: which elements of the flat buffers are this rank's own."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from autotune.predict.program.events import Parameter
from autotune.predict.training_job import Training

ALIGNMENT = 2
"""Elements: flat buffers are padded to a multiple of this times the ranks."""


@dataclass(slots=True)
class Group:
    """Parameters that share a flat buffer: all dense ones, or all experts."""

    members: list[int]
    partitions: int
    """Ranks over which the buffer is partitioned."""
    flat_elements: int = 0
    partition_elements: int = 0
    starts: dict[int, int] = field(default_factory=dict)
    """Offset of each member in the flat buffer."""
    partition: int = 0
    """The index of this rank's partition of the buffer."""
    own: list[int] = field(default_factory=list)
    """Members of which at least one element lies in this rank's partition."""

    def own_elements(self, parameter: int, elements: int) -> int:
        """Return how many elements of a member lie in this rank's partition."""
        start = self.starts[parameter]
        first = self.partition * self.partition_elements
        return max(min(start + elements, first + self.partition_elements) - max(start, first), 0)


def make_groups(
    training: Training, parameters: Sequence[Parameter], elements: Sequence[int], *, rank: int = 0
) -> list[Group]:
    """Lay the trainable parameters into flat buffers: one for dense ones, one for experts.

    Args:
        training: the job.
        parameters: the model's.
        elements: of each parameter on one rank.
        rank: the rank whose partition of each buffer is marked.
    """
    # Without expert parallelism DeepSpeed does not distinguish experts from other weights.
    apart = training.expert_parallel_size > 1
    dense = [k for k, p in enumerate(parameters) if p.trainable and not (apart and p.expert)]
    experts = [k for k, p in enumerate(parameters) if p.trainable and apart and p.expert]
    expert_ranks = max(training.world_size // training.expert_parallel_size, 1)
    groups = [Group(dense, training.world_size), Group(experts, expert_ranks)]
    groups = [group for group in groups if group.members]
    for group in groups:
        total = 0
        for k in _order(group, dealt=training.zero.round_robin_gradients):
            group.starts[k] = total
            total += elements[k]
        step = ALIGNMENT * group.partitions
        group.flat_elements = -(-total // step) * step
        group.partition_elements = group.flat_elements // group.partitions
        group.partition = rank * group.partitions // training.world_size
        group.own = [k for k in group.members if group.own_elements(k, elements[k])]
    return groups


def _order(group: Group, *, dealt: bool) -> list[int]:
    """Return members in buffer order; `round_robin_gradients` distributes them over the ranks."""
    if not dealt:
        return group.members
    return [
        k for first in range(group.partitions) for k in group.members[first :: group.partitions]
    ]
