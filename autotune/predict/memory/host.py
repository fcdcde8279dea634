"""Host memory of one rank: offloaded states, with the rounding of pinned memory.

Pinned tensors take the next power of two (torch's CachingHostAllocator), up to twice the request.
All ranks of a node share its memory: multiply by the local ranks.
"""

from collections import Counter
from dataclasses import dataclass

from autotune.job.ceiling import GIB
from autotune.predict.memory.sub_groups import SubGroup, sub_groups
from autotune.predict.program.events import Parameter
from autotune.predict.training_job import Training

BASE_BYTES = int(1.40 * GIB)
"""Python, torch and a CUDA context once kernels are loaded; the only number fitted to rows."""
NCCL_BASE_BYTES = int(1.70 * GIB)
"""The same with real communicators."""
LAUNCH_BYTES = int(0.82 * GIB)
"""While the engine is still being initialised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """One rank's share of the host, in bytes."""

    items: dict[str, int]
    nvme_bytes: int = 0
    """Of one rank's files."""

    @property
    def total_bytes(self) -> int:
        """All items of one rank."""
        return sum(self.items.values())


def host_memory(
    training: Training, parameters: tuple[Parameter, ...], *, emulated: bool = False
) -> HostMemory:
    """Predict the resident host memory of one rank.

    Args:
        training: the job.
        parameters: the model's.
        emulated: whether the rank runs alone, without real communicators.
    """
    base = NCCL_BASE_BYTES if training.world_size > 1 and not emulated else BASE_BYTES
    zero = training.zero
    if zero.stage < 3 and not zero.offload_optimizer.enabled:
        return HostMemory(items={"process": base})
    shards = [-(-parameter.num_elements // training.world_size) for parameter in parameters]
    trainable = [k for k, parameter in enumerate(parameters) if parameter.trainable]
    elements = sum(shards[k] for k in trainable)
    if not zero.offload_optimizer.enabled:
        return _without_optimizer_offload(training, base, parameters, shards)
    if training.zero.stage < 3:
        return HostMemory(items={"process": base} | _flat_items(training, parameters, elements))
    groups = sub_groups(training, shards, trainable)
    if training.zero.offload_optimizer.device == "nvme":
        items, nvme = _swapped_items(training, groups, elements)
    else:
        items, nvme = _sharded_items(training, groups, elements), 0
    params, params_nvme = _parameter_items(training, parameters, shards)
    return HostMemory(items={"process": base} | items | params, nvme_bytes=nvme + params_nvme)


def pinned(num_bytes: float, *, pin: bool = True) -> int:
    """Return what a pinned tensor takes: the next power of two.

    Example:
        >>> pinned(5 * 2**30) == 8 * 2**30
        True
    """
    number = max(int(num_bytes), 1)
    return 1 << (number - 1).bit_length() if pin else number


def _without_optimizer_offload(
    training: Training, base: int, parameters: tuple[Parameter, ...], shards: list[int]
) -> HostMemory:
    if training.zero.offload_param.enabled:
        items, nvme = _parameter_items(training, parameters, shards)
        return HostMemory(items={"process": base} | items, nvme_bytes=nvme)
    # The shards pass through the host once, to be defragmented, before kernels are loaded.
    passing = LAUNCH_BYTES + training.element_bytes * sum(shards)
    extra = max(passing - base, 0)
    return HostMemory(items={"process": base} | ({"defragmentation": extra} if extra else {}))


def _flat_items(
    training: Training, parameters: tuple[Parameter, ...], elements: int
) -> dict[str, int]:
    """Stages 1 and 2 (stage_1_and_2.py): states of one flat partition."""
    pin = training.zero.offload_optimizer.pin_memory
    master, size = training.master_bytes, training.element_bytes
    largest = max(p.num_elements for p in parameters if p.trainable)
    items = {
        "master_weights": pinned(master * elements, pin=pin),
        "weights_on_their_way": pinned(size * elements, pin=pin),
        "gradients": pinned(master * elements, pin=pin),
        "moments": training.num_moments * training.moment_bytes * elements,
        "gradient_buffer": pinned(size * largest, pin=pin),
    }
    if training.accumulation > 1:
        # Each own gradient is kept as a separate pinned tensor between micro steps.
        own, kept = 0, 0
        for parameter in parameters:
            if own >= elements:
                break
            if parameter.trainable:
                own += parameter.num_elements
                kept += pinned(size * parameter.num_elements, pin=pin)
        items["accumulated_gradients"] = kept
    return items


def _sharded_items(training: Training, groups: list[SubGroup], elements: int) -> dict[str, int]:
    """Stage 3 on the CPU (stage3.py): only gradients are pinned, sub-group by sub-group."""
    pin = training.zero.offload_optimizer.pin_memory
    away = [group.elements for group in groups if not group.on_device]
    moved = sum(away)
    items = {
        "master_weights": training.master_bytes * moved,
        "gradients": sum(pinned(training.master_bytes * n, pin=pin) for n in away),
        "gradient_partition": pinned(training.accumulation_bytes * elements, pin=pin),
        "moments": training.num_moments * training.moment_bytes * moved,
    }
    if not training.zero.offload_param.enabled:
        # The updated sub-group is cast on the host before it is copied to the device.
        items["weights_on_their_way"] = training.element_bytes * max(away, default=0)
    return items


def _swapped_items(
    training: Training, groups: list[SubGroup], elements: int
) -> tuple[dict[str, int], int]:
    """Stage 3 on NVMe: swap buffers stay in host memory, states in files."""
    offload = training.zero.offload_optimizer
    largest = max(group.elements for group in groups)
    swapped = training.num_moments * training.moment_bytes + 2 * training.master_bytes
    items = {
        "swap_buffers": offload.buffer_count * pinned(training.master_bytes * largest),
        "gradient_partition": pinned(
            training.accumulation_bytes * elements, pin=offload.pin_memory
        ),
    }
    return items, swapped * elements


def _parameter_items(
    training: Training, parameters: tuple[Parameter, ...], shards: list[int]
) -> tuple[dict[str, int], int]:
    """Weights that are kept off the GPU between uses."""
    offload, size = training.zero.offload_param, training.element_bytes
    if not offload.enabled:
        return {}, 0
    elements = sum(shards)
    if offload.device == "nvme":
        stay = min(elements, offload.max_in_cpu)
        return {
            "weights": pinned(size * stay, pin=offload.pin_memory),
            "weight_buffers": pinned(size * offload.buffer_count * offload.buffer_size),
        }, size * (elements - stay)
    limit = training.zero.param_persistence_threshold
    # Layers are equal: few sizes, many parameters of each.
    sizes = Counter(zip((p.num_elements for p in parameters), shards, strict=True))
    cached = sum(
        number * pinned(size * shard, pin=offload.pin_memory)
        for (whole, shard), number in sizes.items()
        if whole > limit
    )
    flat = pinned(size * elements, pin=offload.pin_memory)
    return {"weights": flat, "weight_buffers": cached}, 0
