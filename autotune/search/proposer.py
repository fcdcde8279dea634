"""What to try next: interrupted trials, then the first trials, then what the sampler draws."""

import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.outcome import Outcome
from autotune.proposal import Scalar
from autotune.search.baselines import Baseline, first_trials
from autotune.search.candidate import Candidate, TrialRecord, candidate_of_proposal
from autotune.search.recorded import RecordedPoints
from autotune.search.sampler import StoredStudy
from autotune.search.screen import Evidence, Rejection, Screen, rejections_attribute
from autotune.space import SearchSpace
from autotune.workload import Workload

_MAX_ATTEMPTS = 200
"""Points drawn in vain, one after the other, before the space counts as exhausted."""
MAX_REJECTIONS = 20
"""Proposals rejected in a row before the one that needs least is launched all the same: it costs
one trial that may not fit, and teaches sampler and memory model where the border is."""
_USERS_OWN = "base"


@dataclass(slots=True, kw_only=True)
class Proposer:
    """Never proposes the same run twice, nor one that is known not to fit."""

    study: StoredStudy
    space: SearchSpace
    workload: Workload
    base: Mapping[str, Any]
    """The user's ds_config; empty when there is none."""
    seed: int
    screen: Screen | None
    """None launches everything."""
    sampler: str = "tpe"
    """One of `autotune.search.sampler.SAMPLERS`."""
    recorded: RecordedPoints | None = None
    """In a replay: the only points that can be tried."""
    _queue: deque[Candidate] = field(default_factory=deque)
    """Interrupted trials, to be asked again."""
    _baselines: tuple[Baseline, ...] = field(init=False)
    _attempts: dict[str, Outcome] = field(default_factory=dict)
    """What became of each attempt of a baseline, by identity."""
    _known: set[str] = field(default_factory=set)
    """Identities of all candidates that were launched or rejected."""
    _num_stored: int = 0
    """Rejections that the study holds already."""

    def __post_init__(self) -> None:
        self._baselines = first_trials(self.base, space=self.space, workload=self.workload)

    def take_up(self, records: tuple[TrialRecord, ...]) -> None:
        """Go on where an earlier run stopped; interrupted trials are asked again first."""
        for record in records:
            if record.outcome is not None and not record.interrupted:
                self._known.add(self._identity(record.candidate))
                self.note(record.candidate, record.outcome)
        rejections = self.screen.rejections if self.screen is not None else []
        self._num_stored = len(rejections)
        for rejection in rejections:
            self._known.add(self._identity(rejection.candidate))
            if rejection.candidate.is_baseline:
                self._attempts[self._identity(rejection.candidate)] = rejection.outcome()
        self._queue.extend(r.candidate for r in records if r.outcome is None or r.interrupted)

    def note(self, candidate: Candidate, outcome: Outcome) -> None:
        """Take in what became of a launched trial."""
        if candidate.is_baseline:
            self._attempts[self._identity(candidate)] = outcome
        if self.screen is not None:
            self.screen.learn(candidate, outcome)

    def next(self) -> Candidate | None:
        """Return what to launch next, or None if there is nothing left to try."""
        candidate = self._next_queued() or self._next_baseline() or self._next_proposal()
        self._store_rejections()
        return candidate

    def _store_rejections(self) -> None:
        new = self.screen.rejections[self._num_stored :] if self.screen is not None else []
        if new:
            self.study.set_attribute(
                rejections_attribute(self._num_stored), [rejection.to_json() for rejection in new]
            )
            self._num_stored += len(new)

    def _identity(self, candidate: Candidate) -> str:
        return candidate.identity(self.workload.world_size)

    def _is_new(self, candidate: Candidate) -> bool:
        """Return whether a candidate has not come up before, and remember it."""
        identity = self._identity(candidate)
        if identity in self._known:
            return False
        self._known.add(identity)
        return True

    def _next_queued(self) -> Candidate | None:
        while self._queue:
            candidate = self._queue.popleft()
            if self._is_new(candidate):
                return candidate
        return None

    def _next_baseline(self) -> Candidate | None:
        for baseline in self._baselines:
            while attempt := baseline.next_attempt(
                self._attempts,
                self.workload.world_size,
                screened=self.screen is not None and self.screen.tells_what_fits,
            ):
                if self.recorded is not None and self._identity(attempt) not in (
                    self.recorded.candidates
                ):
                    break
                if not self._is_new(attempt):
                    break  # it runs, or is the same run as another baseline's
                # The user's own config is a question of theirs: it is answered by a trial.
                own = baseline.name == _USERS_OWN
                rejection = None if own else self._judge(attempt)
                if rejection is None:
                    return attempt
                self._attempts[self._identity(attempt)] = rejection.outcome()
        return None

    def _next_proposal(self) -> Candidate | None:
        rejected: list[Rejection] = []
        points = self.study.suggestions(self.space, seed=self.seed, sampler=self.sampler)
        for values in itertools.islice(points, _MAX_ATTEMPTS):
            candidate = self._candidate(values)
            if candidate is None or not self._is_new(candidate):
                continue
            rejection = self._judge(candidate)
            if rejection is None:
                return candidate
            rejected.append(rejection)
            if len(rejected) == MAX_REJECTIONS:
                break
        return self._least_needy(rejected)

    def _candidate(self, values: Mapping[str, Scalar]) -> Candidate | None:
        """Return what a drawn point stands for; in a replay the recorded point nearest to it."""
        proposal = self.space.canonical(values)
        if self.recorded is not None:
            return self.recorded.nearest(proposal.values, known=self._known)
        return candidate_of_proposal(proposal, self.space, base=self.base, workload=self.workload)

    def _judge(self, candidate: Candidate) -> Rejection | None:
        if self.screen is None:
            return None
        rejection = self.screen.judge(candidate)
        if rejection is not None:
            self.screen.rejections.append(rejection)
        return rejection

    def _least_needy(self, rejected: list[Rejection]) -> Candidate | None:
        """Return the one to launch all the same: one that only the model speaks against."""
        if not rejected or self.screen is None:
            return None
        least = min(rejected, key=lambda r: (r.evidence is Evidence.TRIAL, r.needed_bytes))
        self.screen.rejections.remove(least)
        return least.candidate
