"""One trial on one slot group: launch, follow, and end it everywhere if it ends anywhere."""

import threading
import time
from collections.abc import Callable
from typing import Any

import ray

from autotune.errors import DispatchError
from autotune.outcome import Phase
from autotune.pool.placement import SlotGroup
from autotune.trial.report import RankReport
from autotune.trial.spec import TrialSpec

OnMark = Callable[[str, int, Phase, str], None]
"""Told of progress: the trial's label, rank, phase, and a word on where in it."""

_POLL_S = 0.5
_GRACE_S = 1.0
"""How long other ranks get to report by themselves after the first failure: the cause may arrive
after its consequence (gloo: within 40 ms either way)."""


def run_ranks(
    group: SlotGroup, spec: TrialSpec, *, on_mark: OnMark, cancelled: threading.Event
) -> list[RankReport]:
    """Run one trial and return every rank's report, in rank order. Blocks.

    Args:
        group: the slots, one per rank.
        spec: the trial.
        on_mark: called from this thread.
        cancelled: ends the trial when set.

    Raises:
        DispatchError: a slot is gone.
    """
    try:
        return _follow(group, spec, _launch(group, spec), on_mark=on_mark, cancelled=cancelled)
    except ray.exceptions.RayTaskError as error:
        raise DispatchError(f"{spec.label}: {error.cause}") from error
    except ray.exceptions.RayError as error:
        raise DispatchError(f"{spec.label}: a slot is gone: {error}") from error


def _launch(group: SlotGroup, spec: TrialSpec) -> int:
    """Launch the ranks, rank 0 first for its port; return how many were launched."""
    as_json = spec.to_json()
    port = ray.get(group.slots[0].launch.remote(as_json, group.place(0, master_port=0).to_json()))
    if port == 0:
        return 1  # rank 0 ended before it had opened the rendezvous
    ray.get(
        [
            slot.launch.remote(as_json, group.place(rank, master_port=port).to_json())
            for rank, slot in enumerate(group.slots)
            if rank
        ]
    )
    return len(group.slots)


def _follow(
    group: SlotGroup,
    spec: TrialSpec,
    num_launched: int,
    *,
    on_mark: OnMark,
    cancelled: threading.Event,
) -> list[RankReport]:
    reports: dict[int, RankReport] = {}
    polls: dict[Any, int] = {
        group.slots[rank].poll.remote(_POLL_S): rank for rank in range(num_launched)
    }
    give_up_at = float("inf")

    def take(ref: Any) -> int:
        """Take in one answer; return its rank."""
        rank = polls.pop(ref)
        news = ray.get(ref)
        for phase, where in news["marks"]:
            on_mark(spec.label, rank, Phase(phase), where)
        if news["report"] is not None:
            reports[rank] = RankReport.from_json(news["report"])
        return rank

    while polls and time.monotonic() < give_up_at and not cancelled.is_set():
        done, _ = ray.wait(list(polls), num_returns=1, timeout=_POLL_S)
        for ref in done:
            rank = take(ref)
            if rank not in reports:
                polls[group.slots[rank].poll.remote(_POLL_S)] = rank
            elif reports[rank].failure is not None:
                give_up_at = min(give_up_at, time.monotonic() + _GRACE_S)
    for ref in list(polls):
        rank = take(ref)
        if rank not in reports:
            why = "the run was interrupted" if cancelled.is_set() else "another rank failed"
            reports[rank] = RankReport.from_json(ray.get(group.slots[rank].stop.remote(why)))
    return [reports[rank] for rank in sorted(reports)]
