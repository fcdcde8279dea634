"""Predicted speed of a job, to compare it with a changed one; never a measurement."""

from autotune.errors import HardwareError
from autotune.gate.fit.job import Job
from autotune.predict.throughput import SpeedSurroundings, Throughput, predict_throughput
from autotune.predict.throughput.surroundings import check_speeds
from autotune.predict.training_job import Training


def has_speed(job: Job) -> bool:
    """Whether anything is known of the device's speed; a user may describe its memory alone."""
    try:
        check_speeds(job.device, job.workload.precision)
    except HardwareError:
        return False
    return True


def predicted_speed(job: Job, training: Training) -> float:
    """Return tokens/s of all ranks."""
    return _predicted(job, training).tokens_per_s


def optimizer_step_s(job: Job, training: Training) -> float:
    """Return the seconds of the optimizer's part of a step."""
    return _predicted(job, training).items["optimizer"]


def _predicted(job: Job, training: Training) -> Throughput:
    surroundings = SpeedSurroundings.of(job.device, local_ranks=job.local_ranks)
    return predict_throughput(training, surroundings)
