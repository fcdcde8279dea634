"""The optimizer step: norms, the update on the device, the CPU or from NVMe, weights back."""

from autotune.predict.memory.summary import lay_out
from autotune.predict.throughput.constants import Rates
from autotune.predict.throughput.kernels import COPY_SHARE
from autotune.predict.throughput.nvme_weights import written_elements
from autotune.predict.throughput.surroundings import SpeedSurroundings
from autotune.predict.training_job import Training

FP32_BYTES = 4
_FP64_BYTES = 8
_PAGEABLE_TO_HOST_BYTES_PER_S = 1.2e9
"""Into new pageable memory, whose pages one thread touches first, in addition to the link: 3.4 to
3.6 ns an fp32 element in all, with one rank on a host and with four (H200)."""
_PAGEABLE_TO_DEVICE_BYTES_PER_S = 5e9
"""From a pageable copy that all threads have just made, in addition to the link: 0.35 to 0.45 ns a
16-bit element more than from pinned memory (H200)."""


def optimizer_s(training: Training, surroundings: SpeedSurroundings, rates: Rates) -> float:
    """Return the seconds of `step`, without its collectives; the host waits for the norm.

    Args:
        training: the job.
        surroundings: what it runs on.
        rates: the constants.
    """
    zero, layout = training.zero, lay_out(training)
    ranks = training.world_size
    elements = layout.partition if zero.stage else layout.trained
    tensors = len(layout.trainable)
    if zero.stage in (1, 2):
        # A rank's partition is a range of the flat buffer: whole tensors, except at its ends.
        tensors = -(-tensors // ranks)
    elif zero.stage == 0:
        # FusedAdam and clipping take all tensors at once.
        tensors = 1
    launches = rates.step_launches * tensors * rates.launch_s
    away = elements * zero.offload_optimizer.ratio if zero.offload_optimizer.enabled else 0.0
    update = _update_bytes(training) * (elements - away)
    on_device = update / (COPY_SHARE * surroundings.device.memory_bytes_per_s)
    # Norms of tensors are bound by launches, the later update of flat groups by memory.
    return launches + on_device + _offloaded_s(training, surroundings, rates, away)


def weights_back_s(training: Training, surroundings: SpeedSurroundings) -> float:
    """Return the seconds of the collectives after the update: mainly weights below stage 3."""
    stage, layout = training.zero.stage, lay_out(training)
    group = surroundings.group(training)
    if training.world_size == 1:
        return 0.0
    if stage in (1, 2):
        num_bytes = training.element_bytes * layout.trained
        return surroundings.collective_s("all_gather", num_bytes, group)
    if stage == 0:
        num_bytes = training.communication_bytes * layout.trained
        return surroundings.collective_s("all_reduce", num_bytes, group)
    return 0.0


def _update_bytes(training: Training) -> float:
    """Bytes read and written per element, pass by pass.

    DeepSpeed computes the norm of the gradients in fp64, casts them to fp32, clips them, updates
    the states, and casts the weight.
    """
    gradient = training.accumulation_bytes
    norm = gradient + 2 * _FP64_BYTES
    widened = gradient + FP32_BYTES
    clipped = 2 * FP32_BYTES
    moments = training.num_moments * training.moment_bytes
    states = FP32_BYTES + 2 * (training.master_bytes + moments)
    loops = 2 if training.foreach_optimizer else 1
    cast = training.master_bytes + training.element_bytes
    return norm + widened + clipped + loops * states + cast


def _offloaded_s(
    training: Training, surroundings: SpeedSurroundings, rates: Rates, elements: float
) -> float:
    """Return the seconds of the update on the CPU; gradients were copied with their reductions."""
    zero = training.zero
    seconds = _weights_over_s(training, surroundings, elements)
    if not elements:
        return seconds
    seconds += rates.cpu_passes * elements / surroundings.adam_elements_per_s(training)
    if zero.offload_optimizer.device == "nvme":
        states = training.master_bytes + training.num_moments * training.moment_bytes
        swapped = 2 * (states + FP32_BYTES) * elements
        seconds += swapped / surroundings.drive_bytes_per_s(training)
    return seconds


def _weights_over_s(training: Training, surroundings: SpeedSurroundings, elements: float) -> float:
    """Return the seconds to copy updated weights to the model, if they were updated elsewhere.

    Below stage 3 they use a pinned buffer. At stage 3 torch copies between the two types
    (`_reassign_or_swap_out_partitioned_parameters`), which needs new pageable memory, and waits
    until those of the drive are written.

    Args:
        training: the job.
        surroundings: what it runs on.
        elements: those that the CPU updates.
    """
    zero, link = training.zero, surroundings.to_host_bytes_per_s(training)
    seconds = training.element_bytes * elements / link
    if zero.stage < 3:
        return seconds
    if not zero.offload_param.enabled:
        return seconds + training.element_bytes * elements / _PAGEABLE_TO_DEVICE_BYTES_PER_S
    num_bytes = training.master_bytes * (lay_out(training).partition - elements)
    written = training.element_bytes * written_elements(training)
    written_s = written / surroundings.drive_bytes_per_s(training)
    return num_bytes / link + num_bytes / _PAGEABLE_TO_HOST_BYTES_PER_S + written_s
