"""The evaluator that a name stands for, on an open pool."""

from pathlib import Path

from autotune.errors import HardwareError
from autotune.evaluate import Evaluator
from autotune.evaluate.measured import MeasuredEvaluator
from autotune.pool.pool import Pool
from autotune.workload import Workload


def open_evaluator(
    name: str,
    pool: Pool,
    *,
    workload: Workload,
    ceiling_bytes: int,
    seed: int,
    study_folder: Path,
) -> Evaluator:
    """Return an evaluator.

    Args:
        name: as a record has it: measured.
        pool: where its trials run.
        workload: the job.
        ceiling_bytes: the most a rank may use on its device.
        seed: of weights and data.
        study_folder: where the ranks' logs go.

    Raises:
        HardwareError: there is no such evaluator.
    """
    if name != "measured":
        raise HardwareError(f"evaluator {name}: there is none of that name; known: measured")
    return MeasuredEvaluator(
        pool=pool,
        workload=workload,
        ceiling_bytes=ceiling_bytes,
        seed=seed,
        study_folder=study_folder,
    )
