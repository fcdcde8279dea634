"""The request and the result of `autotune run`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.job.job import Job
from autotune.study.view import StudyView


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """Inputs of `autotune run`."""

    job: Job = field(default_factory=Job)
    """The options; a field that is None is read from the other sources."""
    job_file: Path | None = None
    """None looks for `autotune.yaml` in the current folder."""
    base: Path | Mapping[str, Any] | None = None
    """The user's ds_config: a file in any form that the gate reads, or its content."""
    space: str = "zero"
    trials: int = 30
    time_budget_s: float | None = None
    device: str = "auto"
    evaluator: str = "auto"
    """measured, emulated, modelled, or auto: measured where the devices suffice."""
    target_gpus: int | None = None
    """Ranks of the final run; None is those of the job."""
    timed: bool = True
    """Emulated collectives take the predicted time of real ones."""
    screen: bool = True
    """Reject proposals before launch that are predicted not to fit."""
    sampler: str = "tpe"
    ray_address: str | None = None
    study: str | None = None
    """None makes a name from model, ranks and time."""
    storage: str | None = None
    """An Optuna storage URL; None is SQLite in the study folder."""
    resume: bool = False
    seed: int | None = None
    confirm_rounds: int = 5
    studies_folder: Path = Path("studies")


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """The finished study."""

    study: StudyView
    folder: Path
    record: Mapping[str, Any] | None
    """`record.json`; None if nothing fits."""
