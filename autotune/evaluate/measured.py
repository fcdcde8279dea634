"""The measured evaluator: N real ranks on N devices."""

from dataclasses import dataclass
from pathlib import Path

from autotune.evaluate import OnMark, TrialRequest
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.evaluate.on_pool import Terms, run_on_pool
from autotune.job.workload import Workload
from autotune.pool.pool import Pool
from autotune.study.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEvaluator:
    """Runs a trial on one slot group of the pool. Keeps each rank's log in the study folder."""

    pool: Pool
    workload: Workload
    ceiling_bytes: int
    """The most a rank may use on its device."""
    seed: int
    study_folder: Path
    num_threads: int | None = None
    """CPU threads of a rank; None is a fair share of its node's cores."""

    @property
    def name(self) -> str:
        """`measured`: every rank of the job runs on a device."""
        return EvaluatorKind.MEASURED

    @property
    def capacity(self) -> int:
        """One trial per slot group."""
        return self.pool.num_groups

    @property
    def terms(self) -> Terms:
        """The settings that all trials share."""
        return Terms(
            workload=self.workload,
            device_kind=self.pool.request.device_kind,
            ceiling_bytes=self.ceiling_bytes,
            num_threads=self.num_threads or self.pool.threads_per_slot,
            seed=self.seed,
        )

    def evaluate(self, request: TrialRequest, on_mark: OnMark) -> Outcome:
        """Run the trial's ranks and judge their reports.

        Raises:
            DispatchError: a slot is gone.
        """
        return run_on_pool(
            self.pool, request, on_mark, terms=self.terms, study_folder=self.study_folder
        )

    def cancel(self) -> None:
        """End running trials within about a second."""
        self.pool.cancel()
