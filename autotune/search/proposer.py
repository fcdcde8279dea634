"""Chooses the next trial: interrupted trials, then the first trials, then the sampler's points."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

from autotune.job.workload import Workload
from autotune.search.baselines import USERS_OWN, Baseline, first_trials
from autotune.search.memory_screen import Screen
from autotune.search.model_proposals import coarse, fastest_first
from autotune.search.speed_model import SpeedModel
from autotune.space import SearchSpace
from autotune.space.proposal import Scalar
from autotune.study.candidate import (
    PREDICTED,
    Candidate,
    TrialRecord,
    candidate_of_proposal,
)
from autotune.study.outcome import Outcome
from autotune.study.rejection import Evidence, Rejection, rejections_attribute
from autotune.study.store import StoredStudy

_MAX_ATTEMPTS = 200
"""Known points drawn in a row before the space counts as exhausted."""
MAX_REJECTIONS = 20
"""Proposals rejected in a row before the one that needs least is launched anyway: it costs one
trial that may not fit, and shows sampler and memory model where the limit is."""
NUM_PREDICTED = 3
"""Proposals of the speed model, before the sampler's."""
MAX_PREDICTED_REPLAYS = 30
"""How many of its fastest points are checked: a replay of each costs tens of milliseconds."""


class Points(Protocol):
    """The only candidates that can be tried, as in a replay of recorded outcomes."""

    def contain(self, candidate: Candidate) -> bool:
        """Whether a candidate is one of them."""

    def nearest(self, values: Mapping[str, Scalar], *, known: Collection[str]) -> Candidate | None:
        """Return the candidate nearest to a drawn point; None if all identities are known."""


@dataclass(slots=True, kw_only=True)
class Proposer:
    """Proposes each run once, and none that is known not to fit."""

    study: StoredStudy
    space: SearchSpace
    workload: Workload
    base: Mapping[str, Any]
    """The user's ds_config; empty when there is none."""
    seed: int
    screen: Screen | None
    """None launches everything."""
    sampler: str = "tpe"
    """One of `autotune.study.store.SAMPLERS`."""
    points: Points | None = None
    """The candidates that a drawn point is mapped to; None allows any point of the space."""
    speed: SpeedModel | None = None
    """Its fastest points are proposed after the baselines; needs a screen."""
    _predicted: list[Candidate] = field(default_factory=list)
    """Its proposals so far."""
    _fastest: Iterator[Candidate] | None = None
    """Points that it can still propose."""
    _queue: deque[Candidate] = field(default_factory=deque)
    """Interrupted trials, to be run again."""
    _baselines: tuple[Baseline, ...] = field(init=False)
    _attempts: dict[str, Outcome] = field(default_factory=dict)
    """The outcome of each attempt of a baseline, by identity."""
    _known: set[str] = field(default_factory=set)
    """Identities of all candidates that were launched or rejected."""
    _num_stored: int = 0
    """Rejections that the study already stores."""

    def __post_init__(self) -> None:
        self._baselines = first_trials(self.base, space=self.space, workload=self.workload)

    def take_up(self, records: tuple[TrialRecord, ...]) -> None:
        """Continue where an earlier run stopped; interrupted trials are run again first."""
        for record in records:
            if record.candidate.is_predicted:
                self._take_up_predicted(record.candidate)
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

    def _take_up_predicted(self, candidate: Candidate) -> None:
        # One that was interrupted and run again is recorded twice.
        if candidate.source not in {c.source for c in self._predicted}:
            self._predicted.append(candidate)

    def note(self, candidate: Candidate, outcome: Outcome) -> None:
        """Learn from the outcome of a launched trial."""
        if candidate.is_baseline:
            self._attempts[self._identity(candidate)] = outcome
        if self.screen is not None:
            self.screen.learn(candidate, outcome)
        if self.speed is not None:
            self.speed.learn(candidate, outcome)

    def next(self) -> Candidate | None:
        """Return what to launch next, or None if there is nothing left to try."""
        candidate = (
            self._next_queued()
            or self._next_baseline()
            or self._next_predicted()
            or self._next_proposal()
        )
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
        """Return whether a candidate is new, and remember it."""
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
                screened=self.screen is not None and self.screen.is_reliable,
            ):
                if self.points is not None and not self.points.contain(attempt):
                    break
                if not self._is_new(attempt):
                    break  # it runs, or is the same run as another baseline
                # The user's config is always measured.
                own = baseline.name == USERS_OWN
                rejection = None if own else self._judge(attempt)
                if rejection is None:
                    return attempt
                self._attempts[self._identity(attempt)] = rejection.outcome()
        return None

    def _next_predicted(self) -> Candidate | None:
        """Return the next of the speed model's best few, each with another stage or micro batch."""
        screen, speed = self.screen, self.speed
        if speed is None or screen is None or len(self._predicted) >= NUM_PREDICTED:
            return None
        if self._fastest is None:
            self._fastest = islice(
                fastest_first(
                    self.space, base=self.base, seed=self.seed, screen=screen, speed=speed
                ),
                MAX_PREDICTED_REPLAYS,
            )
        for candidate in self._fastest:
            alike = coarse(candidate) in map(coarse, self._predicted)
            known = self._identity(candidate) in self._known
            # The sampler did not propose it, so it is not counted as a rejected proposal.
            if alike or known or screen.judge(candidate) is not None:
                continue
            self._known.add(self._identity(candidate))
            named = replace(candidate, source=f"{PREDICTED}{len(self._predicted) + 1}")
            self._predicted.append(named)
            return named
        return None

    def _next_proposal(self) -> Candidate | None:
        rejected: list[Rejection] = []
        points = self.study.suggestions(self.space, seed=self.seed, sampler=self.sampler)
        for values in islice(points, _MAX_ATTEMPTS):
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
        """Return the candidate of a drawn point; None if it was tried."""
        proposal = self.space.canonical(values)
        if self.points is not None:
            return self.points.nearest(proposal.values, known=self._known)
        return candidate_of_proposal(proposal, self.space, base=self.base, workload=self.workload)

    def _judge(self, candidate: Candidate) -> Rejection | None:
        if self.screen is None:
            return None
        rejection = self.screen.judge(candidate)
        if rejection is not None:
            self.screen.rejections.append(rejection)
        return rejection

    def _least_needy(self, rejected: list[Rejection]) -> Candidate | None:
        """Return the one to launch anyway: one that only the memory model rejects."""
        if not rejected or self.screen is None:
            return None
        # A trial that ran out is proof, and a host that runs out of memory ends other processes.
        last = {Evidence.TRIAL: 2, Evidence.HOST: 1}
        least = min(rejected, key=lambda r: (last.get(r.evidence, 0), r.needed_bytes))
        self.screen.rejections.remove(least)
        return least.candidate
