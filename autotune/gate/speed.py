"""Predicted speed of a job, to compare it with a changed one; never a measurement."""

from autotune.gate.job import Job
from autotune.predict.memory.summary import weigh
from autotune.predict.throughput import predict_throughput
from autotune.predict.training import Training


def predicted_speed(job: Job, training: Training) -> float:
    """Return tokens/s of all ranks; weights that live on the host travel in every pass.

    Their way is counted in full: how much of it hides behind compute was never measured.
    """
    known = predict_throughput(training, job.device, local_ranks=job.local_ranks)
    step_s = known.step_s + _weights_on_their_way_s(job, training)
    return known.tokens_per_s * known.step_s / step_s


def optimizer_step_s(job: Job, training: Training) -> float:
    """Return the seconds of the optimizer's part of a step."""
    known = predict_throughput(training, job.device, local_ranks=job.local_ranks)
    return known.items["optimizer"]


def _weights_on_their_way_s(job: Job, training: Training) -> float:
    if not training.zero.offload_param.enabled:
        return 0.0
    passes = 3 if training.activation_checkpointing else 2
    elements = sum(p.num_elements for p in weigh(training).parameters) / training.world_size
    moved = training.accumulation * passes * training.element_bytes * elements
    return moved / job.device.host_bytes_per_s
