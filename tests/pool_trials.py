"""Trials of real ranks on a pool, for tests that run them by hand and send them signals."""

import os
import time
from collections.abc import Callable
from signal import Signals

from autotune.evaluate.judge_reports import outcome_of
from autotune.pool.pool import Pool
from autotune.pool.watcher import MARK_VARIABLE
from autotune.study.outcome import Outcome, Phase
from autotune.trial.spec import TrialSpec
from tests import rank_processes

OnMark = Callable[[str, int, Phase, str], None]


class PoolTrials:
    """A pool, and what its trials came to."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.mark = os.environ[MARK_VARIABLE]

    def run(self, spec: TrialSpec, on_mark: OnMark = lambda *_: None) -> Outcome:
        run = self.pool.run(spec, number=1, alone=False, on_mark=on_mark)
        return outcome_of(
            run.reports, spec, evaluator="measured", tokens_per_step=512, duration_s=run.duration_s
        )

    def run_and_signal(self, spec: TrialSpec, rank: int, signum: Signals) -> tuple[Outcome, float]:
        """Run a trial, and send one rank a signal in the midst of its steps.

        Returns the outcome, and the seconds from the signal to it.
        """
        sent_at: list[float] = []

        def on_mark(_label: str, of_rank: int, phase: Phase, where: str) -> None:
            if not sent_at and of_rank == rank and phase is Phase.STEADY and "step 2" in where:
                os.kill(rank_processes.ranks(self.mark)[rank].pid, signum)
                sent_at.append(time.monotonic())

        outcome = self.run(spec, on_mark)
        assert sent_at, f"rank {rank} never came to its second step"
        return outcome, time.monotonic() - sent_at[0]
