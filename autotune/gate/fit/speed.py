"""Predicted speed of a job, to compare it with a changed one; never a measurement."""

from autotune.errors import HardwareError
from autotune.plan.planned_job import PlannedJob
from autotune.predict.throughput import Throughput, predict_throughput
from autotune.predict.throughput.surroundings import check_speeds
from autotune.predict.training_job import Training


def has_speed(job: PlannedJob) -> bool:
    """Whether anything is known of the device's speed; a user may describe its memory alone."""
    try:
        check_speeds(job.device, job.workload.precision)
    except HardwareError:
        return False
    return True


def predicted_speed(job: PlannedJob, training: Training) -> float:
    """Return tokens/s of all ranks."""
    return _predicted(job, training).tokens_per_s


def optimizer_step_s(job: PlannedJob, training: Training) -> float:
    """Return the seconds of the optimizer's part of a step."""
    return _predicted(job, training).items["optimizer"]


def _predicted(job: PlannedJob, training: Training) -> Throughput:
    return predict_throughput(training, job.speed_surroundings)
