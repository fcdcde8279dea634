"""The first trials: what the user would run without a tuner."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.ds_config.auto import auto_buckets
from autotune.ds_config.build import MICRO_BATCH, build_ds_config, nearest_divisors
from autotune.outcome import Outcome, Phase
from autotune.search.candidate import Candidate, candidate_of_config
from autotune.space import SearchSpace
from autotune.workload import Workload

HF_MICRO_BATCH = 8
"""TrainingArguments' default `per_device_train_batch_size`."""
_DEEPSPEED_STAGES = (0, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A config that somebody would start from, and what they would try when it does not fit."""

    name: str
    attempts: tuple[Candidate, ...]
    """In order; the first that fits is the baseline."""

    def next_attempt(self, tried: Candidate, outcome: Outcome) -> Candidate | None:
        """Return what to try after `tried` turned out as `outcome`, or None if that is all."""
        if not outcome.status.does_not_fit:
            return None
        position = self.attempts.index(tried)
        failed_in = outcome.failure.phase if outcome.failure else None
        if failed_in in (Phase.BUILD, Phase.INIT):
            # The model states alone do not fit: no micro batch helps.
            return None
        return next(iter(self.attempts[position + 1 :]), None)


def first_trials(
    base: Mapping[str, Any], *, space: SearchSpace, workload: Workload
) -> tuple[Baseline, ...]:
    """Return the baselines of a study.

    - `base`: the user's config, exactly as given.
    - `hf-auto`: ZeRO-3 with the sizes that Hugging Face puts in place of "auto".
    - `deepspeed-stageN`: stage N with all of DeepSpeed's defaults.

    Where a micro batch is not given it starts at what its maker would take, and halves until the
    config fits, first without activation checkpointing and then with it, as people do by hand.
    """
    per_rank = workload.sequences_per_rank
    hf_micro_batch = nearest_divisors(per_rank, HF_MICRO_BATCH)[0]
    found = []
    if base:
        given = base.get(MICRO_BATCH)
        start = hf_micro_batch if given == "auto" else None
        found.append(_baseline("base", base, start=start, space=space, workload=workload))
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
    found.append(
        _baseline("hf-auto", hf_auto, start=hf_micro_batch, space=space, workload=workload)
    )
    found += [
        _baseline(
            f"deepspeed-stage{stage}",
            {"zero_optimization": {"stage": stage}},
            # DeepSpeed's default is no accumulation: all of a rank's sequences at once.
            start=per_rank,
            space=space,
            workload=workload,
        )
        for stage in _DEEPSPEED_STAGES
    ]
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
    attempts = [
        candidate_of_config(
            name,
            build_ds_config(config, workload, {} if micro is None else {MICRO_BATCH: micro}),
            space=space,
            workload=workload,
            activation_checkpointing=checkpointing,
        )
        for checkpointing in (False, True)
        for micro in ([None] if start is None else _halvings(start, workload.sequences_per_rank))
    ]
    return Baseline(name=name, attempts=tuple(attempts))


def _halvings(start: int, per_rank: int) -> Iterator[int]:
    micro = start
    while micro >= 1:
        if per_rank % micro == 0:
            yield micro
        micro //= 2
