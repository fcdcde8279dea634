"""One trial on one slot group: launches and follows it, and ends all ranks when one ends."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray

from autotune.errors import DispatchError
from autotune.pool.placement import SlotGroup
from autotune.study.outcome import Phase
from autotune.trial.probe.spec import ProbeSpec
from autotune.trial.report import RankReport
from autotune.trial.spec import TrialSpec

OnMark = Callable[[str, int, Phase, str], None]
"""Called for progress: the trial's label, rank, phase, and where in the phase."""

_POLL_S = 0.5
_GRACE_S = 1.0
"""How long other ranks have to report after the first failure: the cause may arrive after its
consequence (gloo: within 40 ms either way)."""
_ABANDON_S = 2.0
"""How long slots have to answer after an interruption. The kernel may need a minute for a killed
rank with 100 GB of pinned memory, and a slot of a cluster that has died never answers."""


def run_ranks(
    group: SlotGroup, spec: TrialSpec | ProbeSpec, *, on_mark: OnMark, cancelled: threading.Event
) -> list[RankReport]:
    """Run one trial and return every launched rank's report, in rank order. Blocks.

    Args:
        group: the slots, one per rank.
        spec: the trial.
        on_mark: called from this thread.
        cancelled: ends the trial when set.

    Raises:
        DispatchError: a slot is gone; or `cancelled` was set before a rank was launched, or a slot
        did not end its rank within two seconds.
    """
    answers = _Answers(spec.label, cancelled)
    try:
        _wait_ready(group, answers, cancelled)
        return _Followed(group, spec, on_mark, answers).reports(cancelled)
    except ray.exceptions.RayTaskError as error:
        raise DispatchError(f"{spec.label}: {error.cause}") from error
    except ray.exceptions.RayError as error:
        raise DispatchError(f"{spec.label}: a slot is gone: {error}") from error


class _Answers:
    """Collects the answers of slots, until the run is interrupted."""

    def __init__(self, label: str, cancelled: threading.Event) -> None:
        self.label = label
        self._cancelled = cancelled
        self._abandon_at = math.inf

    def of(self, refs: Sequence[Any]) -> list[Any]:
        """Return the answers in order, once all have arrived.

        Raises:
            DispatchError: the run was interrupted, and some slots did not answer.
        """
        waiting = list(refs)
        while waiting:
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=_POLL_S)
            if waiting and self._cancelled.is_set():
                now = time.monotonic()
                self._abandon_at = min(self._abandon_at, now + _ABANDON_S)
                if now >= self._abandon_at:
                    raise DispatchError(
                        f"{self.label}: the run was interrupted; {len(waiting)} of {len(refs)} "
                        f"slots had not answered {_ABANDON_S:.0f} s later"
                    )
        return list(ray.get(list(refs)))


def _wait_ready(group: SlotGroup, answers: _Answers, cancelled: threading.Event) -> None:
    """Wait until every slot can fork; in a study's first trial the parents may still load."""
    waiting = list(group.slots)
    while not cancelled.is_set():
        ready = answers.of([slot.ready.remote(_POLL_S) for slot in waiting])
        waiting = [slot for slot, is_ready in zip(waiting, ready, strict=True) if not is_ready]
        if not waiting:
            return
    raise DispatchError(f"{answers.label}: the run was interrupted before it was launched")


class _Followed:
    """The ranks of one trial, from launch to their reports."""

    def __init__(
        self,
        group: SlotGroup,
        spec: TrialSpec | ProbeSpec,
        on_mark: OnMark,
        answers: _Answers,
    ) -> None:
        self._answers = answers
        self._group = group
        self._label = spec.label
        self._program = spec.program
        self._spec = spec.to_json()
        self._on_mark = on_mark
        self._reports: dict[int, RankReport] = {}
        self._polls: dict[Any, int] = {}
        self._give_up_at = math.inf
        self._port = 0
        self._all_launched = False

    def reports(self, cancelled: threading.Event) -> list[RankReport]:
        # Rank 0 alone: the others need the port of the rendezvous that it opens.
        self._launch([0])
        while self._polls and time.monotonic() < self._give_up_at and not cancelled.is_set():
            done, _ = ray.wait(list(self._polls), num_returns=1, timeout=_POLL_S)
            for ref in done:
                rank = self._take(ref)
                if rank not in self._reports:
                    self._poll(rank)
                    self._launch_others()
        self._stop("the run was interrupted" if cancelled.is_set() else "another rank failed")
        return [self._reports[rank] for rank in sorted(self._reports)]

    def _launch(self, ranks: Sequence[int]) -> None:
        self._answers.of(
            [
                self._group.slots[rank].launch.remote(
                    self._program,
                    self._spec,
                    self._group.place(rank, master_port=self._port).to_json(),
                )
                for rank in ranks
            ]
        )
        for rank in ranks:
            self._poll(rank)

    def _launch_others(self) -> None:
        if self._port and not self._all_launched:
            self._all_launched = True
            self._launch(range(1, len(self._group.slots)))

    def _poll(self, rank: int) -> None:
        self._polls[self._group.slots[rank].poll.remote(_POLL_S)] = rank

    def _take(self, ref: Any) -> int:
        """Process one slot's answer; return its rank."""
        rank = self._polls.pop(ref)
        news = ray.get(ref)
        for phase, where in news["marks"]:
            self._on_mark(self._label, rank, Phase(phase), where)
        if news["report"] is not None:
            self._reports[rank] = RankReport.from_json(news["report"])
            if self._reports[rank].failure is not None:
                self._give_up_at = min(self._give_up_at, time.monotonic() + _GRACE_S)
        self._port = self._port or news["port"] or 0
        return rank

    def _stop(self, why: str) -> None:
        """End the running ranks, all at once: the kernel may need seconds for each."""
        stops = {rank: self._group.slots[rank].stop.remote(why) for rank in self._polls.values()}
        self._answers.of(list(self._polls))
        for ref in list(self._polls):
            self._take(ref)
        for rank, report in zip(stops, self._answers.of(list(stops.values())), strict=True):
            if rank not in self._reports:
                self._reports[rank] = RankReport.from_json(report)
