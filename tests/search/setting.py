"""Studies of the fake evaluator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.job.model_shape import load_model_shape
from autotune.job.workload import Workload
from autotune.search.budget import Budget
from autotune.search.loop import Search
from autotune.search.progress import Progress, Silent
from autotune.space import SearchSpace, load_space
from autotune.space.reading import read_parameters
from autotune.study.candidate import Candidate, TrialRecord
from autotune.study.folder import OpenedStudy, open_study
from autotune.study.outcome import Outcome, Status
from autotune.study.store import StoredStudy
from autotune.study.view import StudySetup
from tests.evaluate.fake import MIB, FakeEvaluator
from tests.job.workloads import resolve_workload

CEILING_BYTES = 160 * MIB
"""Stage 0 (64 MiB of states) fits with a micro batch of 4 (4 x 16 MiB), not of 8."""


FEW_POINTS = """
parameters:
  zero_optimization.stage: {choices: [1, 2]}
  zero_optimization.overlap_comm: {choices: [false, true]}
  train_micro_batch_size_per_gpu: {choices: [1, 2, 4, 8]}
"""
"""16 points, of which stage 1 with overlap and a micro batch of 8 just fits and is the fastest."""


def tiny_workload(*, gpus: int = 2, global_batch_size: int = 16, **options: Any) -> Workload:
    return resolve_workload(
        load_model_shape("tiny"),
        gpus=gpus,
        base=options.pop("base", {}),
        global_batch_size=global_batch_size,
        device_kind="cpu",
        **options,
    )


def small_space(text: str) -> SearchSpace:
    """Return a space from YAML."""
    return SearchSpace(name="small", parameters=read_parameters(text, source="small.yaml"))


@dataclass(slots=True, kw_only=True)
class Setting:
    """A study, and everything that a search of it needs."""

    folder: Path
    base: Mapping[str, Any]
    workload: Workload
    space: SearchSpace
    evaluator: FakeEvaluator
    seed: int = 1
    ceiling_bytes: int = CEILING_BYTES
    on_disk: bool = False

    @property
    def url(self) -> str:
        # SQLite waits for the disk 18 times a trial.
        return f"sqlite:///{self.folder / 'study.db' if self.on_disk else ':memory:'}"

    def setup(self) -> StudySetup:
        return StudySetup(
            workload=self.workload,
            space=self.space,
            base=self.base,
            device_kind="cpu",
            ceiling_bytes=self.ceiling_bytes,
            evaluator=self.evaluator.name,
            seed=self.seed,
            environment={"autotune": "as if"},
            gpus_per_node=2 if self.evaluator.name == "emulated" else None,
        )

    def open(self, *, resume: bool = False) -> OpenedStudy:
        return open_study(self.folder, self.url, self.setup(), resume=resume)

    def search(
        self, *, trials: int, study: StoredStudy | None = None, progress: Progress | None = None
    ) -> StoredStudy:
        """Search, in a new study unless one is given."""
        stored = study or self.open().stored
        Search(
            study=stored,
            evaluator=self.evaluator,
            space=self.space,
            workload=self.workload,
            base=self.base,
            ceiling_bytes=self.ceiling_bytes,
            seed=self.seed,
            budget=Budget(max_trials=trials),
            progress=progress or Silent(),
        ).run()
        return stored


def setting(
    folder: Path,
    *,
    base: Mapping[str, Any] | None = None,
    space: SearchSpace | None = None,
    workload: Workload | None = None,
    ceiling_bytes: int = CEILING_BYTES,
    on_disk: bool = False,
    **fake: Any,
) -> Setting:
    """Return a setting with the default space and the tiny model on two ranks."""
    base = base or {}
    workload = workload or tiny_workload(base=base)
    return Setting(
        folder=folder,
        base=base,
        workload=workload,
        space=(space or load_space("zero")).bind(workload, base),
        evaluator=FakeEvaluator(workload=workload, ceiling_bytes=ceiling_bytes, **fake),
        ceiling_bytes=ceiling_bytes,
        on_disk=on_disk,
    )


def candidates(records: Sequence[TrialRecord]) -> list[Candidate]:
    """Return the candidates of all trials that were not interrupted, in order."""
    return [record.candidate for record in records if not record.interrupted]


def statuses(records: Sequence[TrialRecord]) -> list[Status | None]:
    return [record.outcome.status if record.outcome else None for record in records]


def outcome(record: TrialRecord) -> Outcome:
    assert record.outcome is not None
    return record.outcome
