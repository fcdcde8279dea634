"""The terms of an estimate: every kind of buffer that a rank holds, and the parts of a step.

The line of each buffer describes it, who allocates it, and which module has the arithmetic.
"""

from enum import IntEnum, StrEnum


class Item(IntEnum):
    """A kind of device memory. The names, in lower case, are the keys of an estimate's `items`."""

    WEIGHTS = 0
    """Weights in the precision they compute in: whole, or this rank's shard (flat, sharded)."""
    FROZEN_WEIGHTS = 1
    """Weights that are not trained: whole below stage 3 (flat)."""
    MASTER_WEIGHTS = 2
    """The optimizer's fp32 copy of this rank's partition."""
    MOMENTS = 3
    """Optimizer state per parameter: two tensors for Adam, from the first step on."""
    GRADIENTS = 4
    """Gradients as autograd leaves them, until a bucket or a reduction takes them."""
    GRADIENT_PARTITION = 5
    """Reduced gradients of this rank's partition, kept until the step."""
    REDUCE_BUCKET = 6
    """`reduce_bucket_size`: one buffer, two with overlap_comm at stages 1 and 2."""
    REDUCTION_COPY = 7
    """A bucket's second copy while it is reduced, and casts to the communication type."""
    GATHERED_WEIGHTS = 8
    """Stage 3: parameters of the running layers, prefetched or not yet released (gathers)."""
    PERSISTENT_WEIGHTS = 9
    """Stage 3: parameters below `param_persistence_threshold`, always gathered."""
    GATHER_BUFFER = 10
    """Stage 3: flat buffer of a prefetch of several parameters, until the last is used."""
    SECONDARY_WEIGHTS = 11
    """ZeRO++ hpZ: the copy that backward gathers from."""
    STEP_GRADIENTS = 12
    """The flat gradient and its fp32 copy during `step`."""
    NORM_SCRATCH = 13
    """Gradient norms are taken in fp64: 8 bytes an element of the largest gradient."""
    OFFLOAD_BUFFER = 14
    """Stages 1 and 2 with optimizer offload: a buffer as large as the largest parameter."""
    ACTIVATIONS = 15
    """What forward keeps for backward, and its temporaries."""
    ACTIVATION_GRADIENTS = 16
    """Temporaries of backward."""
    LOGITS = 17
    """The head's output, its fp32 copy, log-softmax and their gradients: the loss."""
    WORKSPACE = 18
    """cuBLAS: one workspace per thread that multiplies matrices."""
    INITIALISATION = 19
    """What only `initialize` needs: whole parameters before sharding, copies, zeros."""
    BLOCK_WASTE = 20
    """The allocator hands out blocks up to 1 MiB larger than asked."""


ITEM_NAMES = tuple(item.name.lower() for item in Item)
NUM_ITEMS = len(Item)


class Part(StrEnum):
    """Parts of a training step with separate peaks."""

    INIT = "init"
    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    REDUCTION = "gradient reduction"
    STEP = "optimizer step"
