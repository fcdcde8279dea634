"""What `autotune run` is asked for, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.job.cpu_threads import RankLauncher
from autotune.study.view import StudyView


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """What a user asks for; every field is an option of `autotune run`."""

    model: str
    gpus: int
    base: Path | None = None
    space: str = "zero"
    seq_len: int | None = None
    global_batch_size: int | None = None
    precision: str | None = None
    memory_ceiling: str = "90%"
    trials: int = 30
    time_budget_s: float | None = None
    device: str = "auto"
    evaluator: str = "auto"
    """measured, emulated, modelled, or auto: measured where the devices suffice."""
    gpu_type: str | None = None
    """What modelled ranks run on."""
    devices: Path | None = None
    """A YAML file with more devices for `gpu_type`."""
    target_gpus: int | None = None
    """Ranks of the run that the study is for; None is `gpus`."""
    gpus_per_node: int | None = None
    """Ranks that an emulated or modelled rank would share its host with; None is all, 8 at most."""
    host_memory: str | None = None
    """Of an emulated or modelled node; None is this host's, or of a modelled one not asked."""
    cpu_threads: int | None = None
    """CPU threads of a rank (`OMP_NUM_THREADS`); None is what the shell or the launcher sets, else
    a fair share of a node's cores."""
    launcher: RankLauncher | None = None
    """What will start the ranks of the run that the study is for; None is not known."""
    timed: bool = True
    """Emulated collectives take the time that real ones would."""
    probe: Path | None = None
    """Where those times, and those of the speed model, come from; None is the catalogue."""
    link: str | None = None
    """Network between nodes, for the catalogue; None is what such devices usually come with."""
    screen: bool = True
    """Reject before launch what is predicted not to fit."""
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
    """What came of it."""

    study: StudyView
    folder: Path
    record: Mapping[str, Any] | None
    """`record.json`; None if nothing fits."""
