"""The search: ask, evaluate, tell, until the budget is spent."""

from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from autotune.errors import ConfigError
from autotune.evaluate import Evaluator, TrialRequest
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.job.workload import Workload
from autotune.search.baselines import USERS_OWN
from autotune.search.budget import Budget
from autotune.search.memory_screen import Screen
from autotune.search.prelaunch_lint import refusal
from autotune.search.progress import Progress
from autotune.search.proposer import Points, Proposer
from autotune.search.speed_model import SpeedModel
from autotune.space import SearchSpace
from autotune.study.candidate import Candidate, TrialRecord
from autotune.study.outcome import Outcome, Status
from autotune.study.store import StoredStudy


@dataclass(slots=True, kw_only=True)
class Search:
    """One run of a search over a stored study."""

    study: StoredStudy
    evaluator: Evaluator
    space: SearchSpace
    workload: Workload
    base: Mapping[str, Any]
    """The user's ds_config; empty when there is none."""
    ceiling_bytes: int
    seed: int
    budget: Budget
    progress: Progress
    screen: Screen | None = None
    """Rejects candidates that do not fit before launch; None launches everything."""
    speed: SpeedModel | None = None
    """Proposes a few first trials, and learns from all; None where there is no speed model."""
    sampler: str = "tpe"
    """One of `autotune.study.store.SAMPLERS`."""
    points: Points | None = None
    """The only candidates that can be tried; None allows the whole space."""
    _proposer: Proposer = field(init=False)
    _durations_s: list[float] = field(default_factory=list)
    _best_tokens_per_s: float | None = None

    def __post_init__(self) -> None:
        self._proposer = Proposer(
            study=self.study,
            space=self.space,
            workload=self.workload,
            base=self.base,
            seed=self.seed,
            screen=self.screen,
            sampler=self.sampler,
            points=self.points,
            speed=self.speed,
        )

    def run(self) -> None:
        """Search until the budget is spent or the space is exhausted.

        Finished trials of an earlier run are neither repeated nor lost.

        Raises:
            ConfigError: DeepSpeed refuses the user's base config.
            DispatchError: the pool failed; what had finished is stored.
            KeyboardInterrupt: after the running trials were ended and stored as interrupted.
        """
        self._take_up(self.study.records())
        running: dict[Future[Outcome], tuple[int, Candidate]] = {}
        with ThreadPoolExecutor(self.evaluator.capacity) as executor:
            try:
                while self._fill(executor, running):
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._end(*running[future], future.result())
                        del running[future]
            except BaseException:
                # No trial is lost after Ctrl-C, a failed pool, or a bug.
                ended = {future: future.done() for future in running}
                self.evaluator.cancel()
                for future, (number, _) in running.items():
                    self._save(future, number, ended=ended[future])
                raise
        # The confirmation does not count against the budget.
        self.progress.remaining(num_launched=len(self._durations_s), left_s=0.0)

    def _save(self, future: Future[Outcome], number: int, *, ended: bool) -> None:
        """Store a trial that is not stored: its outcome if it has ended, else as interrupted."""
        if self.study.has_outcome(number):
            return
        if ended and future.exception() is None:
            self.study.tell(number, future.result(), ceiling_bytes=self.ceiling_bytes)
        else:
            self.study.interrupt(number)

    def _take_up(self, records: tuple[TrialRecord, ...]) -> None:
        """Continue where an earlier run stopped."""
        for record in records:
            if record.outcome is None:
                self.study.interrupt(record.number)
            elif not record.interrupted:
                self._note(record.outcome)
        self._proposer.take_up(records)

    def _fill(
        self,
        executor: ThreadPoolExecutor,
        running: dict[Future[Outcome], tuple[int, Candidate]],
    ) -> bool:
        """Launch as many trials as the pool has room for; return whether any runs."""
        while len(running) < self.evaluator.capacity:
            num_launched = len(self._durations_s) + len(running)
            # The time left is not known before a trial has ended.
            mean_s = fmean(self._durations_s) if self._durations_s else 0.0
            self.progress.remaining(
                num_launched=num_launched,
                left_s=self.budget.left_s(num_launched, mean_s / self.evaluator.capacity),
            )
            if not self.budget.allows(num_launched):
                break
            candidate = self._proposer.next()
            if candidate is None:
                break
            number = self.study.begin(candidate, self.space)
            refused = refusal(candidate, self.workload)
            if refused is not None:
                self._end(number, candidate, refused)
                continue
            future = executor.submit(
                self.evaluator.evaluate, self._request(number, candidate), self.progress.marked
            )
            running[future] = number, candidate
            self.progress.launched(_label(number), candidate)
        return bool(running)

    def _request(self, number: int, candidate: Candidate) -> TrialRequest:
        return TrialRequest(
            number=number,
            label=_label(number),
            ds_config=candidate.ds_config,
            model_settings=candidate.model_settings,
            # A baseline is the reference, so it is not stopped early.
            best_tokens_per_s=None if candidate.is_baseline else self._best_tokens_per_s,
        )

    def _end(self, number: int, candidate: Candidate, outcome: Outcome) -> None:
        """Store an outcome, and learn from it."""
        self.study.tell(
            number,
            outcome,
            ceiling_bytes=self.ceiling_bytes,
            predicted_bytes=self.screen.predicted_bytes(candidate) if self.screen else None,
        )
        self.progress.finished(_label(number), candidate, outcome)
        self._note(outcome)
        self._proposer.note(candidate, outcome)
        if candidate.source == USERS_OWN and outcome.status is Status.INVALID:
            assert outcome.failure is not None
            # The rules reject before a launch; so does the modelled evaluator, which launches
            # nothing.
            launched = outcome.evaluator == self.evaluator.name != EvaluatorKind.MODELLED
            who = "DeepSpeed refuses it at initialize: " if launched else ""
            raise ConfigError(
                f"--base: {who}{outcome.failure.reason}; fix the config, or leave --base out"
            )

    def _note(self, outcome: Outcome) -> None:
        self._durations_s.append(outcome.duration_s)
        if outcome.status is Status.COMPLETE:
            tokens_per_s = outcome.tokens_per_s.mean
            self._best_tokens_per_s = max(self._best_tokens_per_s or 0.0, tokens_per_s)


def _label(number: int) -> str:
    return f"trial-{number:04d}"
