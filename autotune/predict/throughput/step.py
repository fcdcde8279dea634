"""The optimizer step: norms, the update on the device, the CPU or from NVMe, weights back."""

from autotune.predict.memory.summary import lay_out
from autotune.predict.throughput.rates import Rates
from autotune.predict.throughput.surroundings import SpeedSurroundings
from autotune.predict.training import Training

FP32_BYTES = 4


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
        # A rank's partition is a range of the flat buffer: whole tensors, but for its ends.
        tensors = -(-tensors // ranks)
    elif zero.stage == 0:
        # FusedAdam and clipping take all tensors at once.
        tensors = 1
    launches = rates.step_launches * tensors * rates.launch_s
    away = elements * zero.offload_optimizer.ratio if zero.offload_optimizer.enabled else 0.0
    update = _update_bytes(training) * (elements - away)
    on_device = update / surroundings.device.memory_bytes_per_s
    return max(launches, on_device) + _offloaded_s(training, surroundings, rates, away)


def weights_back_s(training: Training, surroundings: SpeedSurroundings) -> float:
    """Return the seconds of the collectives after the update: weights below stage 3, else few."""
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
    """Bytes read and written per element: gradients widened, their norm, the states, the weight."""
    moments = training.num_moments * training.moment_bytes
    states = 2 * (training.master_bytes + moments)
    gradients = 2 * training.accumulation_bytes + 3 * FP32_BYTES
    loops = 2 if training.foreach_optimizer else 1
    return loops * states + gradients + training.element_bytes


def _offloaded_s(
    training: Training, surroundings: SpeedSurroundings, rates: Rates, elements: float
) -> float:
    """Gradients to the host, CPUAdam on the cores that the node's ranks share, weights back."""
    if not elements:
        return 0.0
    sharing = min(surroundings.local_ranks, training.world_size)
    rate = surroundings.cpu_adam_elements_per_s or rates.cpu_adam_elements_per_s / sharing
    moved = (FP32_BYTES + training.element_bytes) * elements
    seconds = elements / rate + moved / surroundings.to_host_bytes_per_s
    if training.zero.offload_optimizer.device == "nvme":
        states = training.master_bytes + training.num_moments * training.moment_bytes
        swapped = 2 * (states + FP32_BYTES) * elements
        seconds += swapped / surroundings.drive_bytes_per_s(training)
    return seconds
