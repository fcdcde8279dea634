"""The first trials: what the user would run without a tuner."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune import dotted
from autotune.ds_config.auto import auto_buckets
from autotune.ds_config.build import (
    MICRO_BATCH,
    build_ds_config,
    nearest_divisors,
    without_searched,
)
from autotune.ds_config.key_aliases import documented
from autotune.job.workload import Workload
from autotune.space import SearchSpace
from autotune.study.candidate import Candidate, candidate_of_config
from autotune.study.outcome import Outcome, Phase

USERS_OWN = "base"
"""The source of the user's config."""
HF_MICRO_BATCH = 8
"""TrainingArguments' default `per_device_train_batch_size`."""
_DEEPSPEED_STAGES = (0, 2, 3)
_STAGE = "zero_optimization.stage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A config that a user would start from, and the next attempts when it does not fit."""

    name: str
    plain: tuple[Candidate, ...]
    """Without activation checkpointing, in order of falling micro batch."""
    checkpointed: tuple[Candidate, ...]
    """With it; tried only if nothing without it fits."""

    def next_attempt(
        self, outcomes: Mapping[str, Outcome], world_size: int, *, screened: bool = False
    ) -> Candidate | None:
        """Return what to try next, or None if the baseline is found or does not fit at all.

        The largest micro batch that fits is found by halving the interval: the largest first, then
        the smallest, then between. Where the screen rejects attempts without a launch, it is found
        by going down one by one, which then launches once or twice.

        Args:
            outcomes: those of the attempts so far, by identity.
            world_size: data-parallel ranks.
            screened: whether attempts are screened before they are launched.
        """
        for ladder in filter(None, (self.plain, self.checkpointed)):
            tried = [outcomes.get(candidate.identity(world_size)) for candidate in ladder]
            if any(_states_alone_do_not_fit(outcome) for outcome in tried):
                return None
            position = _next_rung_down(tried) if screened else _next_rung(tried)
            if position is not None:
                return ladder[position]
            if any(outcome and not outcome.status.does_not_fit for outcome in tried):
                return None
        return None


def _next_rung_down(tried: Sequence[Outcome | None]) -> int | None:
    """Return the first position that is not known, unless one above it fits."""
    for position, outcome in enumerate(tried):
        if outcome is None:
            return position
        if not outcome.status.does_not_fit:
            return None
    return None


def _next_rung(tried: Sequence[Outcome | None]) -> int | None:
    """Return the position to try next on a ladder whose need falls; None if all is known."""
    first, last = 0, len(tried) - 1
    for position in (first, last):
        outcome = tried[position]
        if outcome is None:
            return position
        if position == first and not outcome.status.does_not_fit:
            return None
        if position == last and outcome.status.does_not_fit:
            return None
    too_large = max(i for i, o in enumerate(tried) if o is not None and o.status.does_not_fit)
    fits = min(i for i, o in enumerate(tried) if o is not None and not o.status.does_not_fit)
    between = (too_large + fits) // 2
    return between if tried[between] is None else None


def _states_alone_do_not_fit(outcome: Outcome | None) -> bool:
    """Whether a trial ran out before its first micro step, so that no micro batch helps."""
    return (
        outcome is not None
        and outcome.status.does_not_fit
        and outcome.failure is not None
        and outcome.failure.phase in (Phase.BUILD, Phase.INIT)
    )


def first_trials(
    base: Mapping[str, Any], *, space: SearchSpace, workload: Workload
) -> tuple[Baseline, ...]:
    """Return the baselines of a study.

    - `base`: the user's config, exactly as given.
    - `hf-auto`: ZeRO-3 with the sizes that Hugging Face puts in place of "auto".
    - `deepspeed-stageN`: stage N with all of DeepSpeed's defaults.

    The others keep every key of the user's config that is not searched, as the export must; where
    that fixes another stage than theirs, they are left out.

    Where a micro batch is not given it starts at what its maker would take; if that does not fit,
    the largest half, quarter, ... of it that does is the baseline, without activation
    checkpointing if possible.
    """
    per_rank = workload.sequences_per_rank
    hf_micro_batch = nearest_divisors(per_rank, HF_MICRO_BATCH)[0]
    found: list[Baseline] = []
    kept = without_searched(base, [MICRO_BATCH, *(p.key for p in space.parameters)])
    kept_stage = documented(dotted.flatten(kept)).get(_STAGE)
    if base:
        given = base.get(MICRO_BATCH)
        start = hf_micro_batch if given == "auto" else None
        found.append(_baseline(USERS_OWN, base, start=start, space=space, workload=workload))
    hf_auto = {
        "zero_optimization": {
            "stage": 3,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "sub_group_size": 1_000_000_000,
            "stage3_max_live_parameters": 1_000_000_000,
            "stage3_max_reuse_distance": 1_000_000_000,
            **{
                key.removeprefix("zero_optimization."): value
                for key, value in auto_buckets(workload.model.hidden_size).items()
            },
        }
    }
    others = [("hf-auto", hf_auto, hf_micro_batch)]
    for stage in _DEEPSPEED_STAGES:
        config: dict[str, Any] = {"zero_optimization": {"stage": stage}}
        # DeepSpeed's default is no accumulation: all of a rank's sequences at once.
        others.append((f"deepspeed-stage{stage}", config, per_rank))
    for name, config, start in others:
        if kept_stage in (None, config["zero_optimization"]["stage"]):
            whole = dotted.updated(config, dotted.flatten(kept))
            found.append(_baseline(name, whole, start=start, space=space, workload=workload))
    return tuple(found)


def _baseline(
    name: str,
    config: Mapping[str, Any],
    *,
    start: int | None,
    space: SearchSpace,
    workload: Workload,
) -> Baseline:
    """Return a baseline; with `start` None the micro batch is what the config says."""
    micro_batches = [None] if start is None else list(_halvings(start, workload.sequences_per_rank))

    def ladder(*, activation_checkpointing: bool) -> tuple[Candidate, ...]:
        return tuple(
            candidate_of_config(
                name,
                build_ds_config(config, workload, {} if micro is None else {MICRO_BATCH: micro}),
                space=space,
                workload=workload,
                activation_checkpointing=activation_checkpointing,
            )
            for micro in micro_batches
        )

    plain = ladder(activation_checkpointing=False)
    if workload.activation_checkpointing is not None:
        # Both would be the same runs.
        return Baseline(name=name, plain=plain, checkpointed=())
    return Baseline(name=name, plain=plain, checkpointed=ladder(activation_checkpointing=True))


def _halvings(start: int, per_rank: int) -> Iterator[int]:
    micro = start
    while micro >= 1:
        if per_rank % micro == 0:
            yield micro
        micro //= 2
