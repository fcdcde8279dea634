from collections.abc import Callable
from math import ceil, log2
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune import dotted
from autotune.ds_config.auto import auto_buckets
from autotune.ds_config.build import MICRO_BATCH
from autotune.search.baselines import Baseline, first_trials
from autotune.space import load_space
from autotune.study.candidate import Candidate
from autotune.study.outcome import Failure, Outcome, Phase, Status
from tests.evaluate.fake import MIB
from tests.search.setting import setting, tiny_workload

ODD_BASE = {
    "zero_optimization": {
        "stage": 2,
        "reduce_bucket_size": 7,
        "offload_optimizer": {"device": "nvme", "nvme_path": "/scratch"},
        "round_robin_gradients": True,
    },
    "comms_logger": {"enabled": False, "prof_ops": ["all_reduce"]},
    "steps_per_print": 11,
    "train_micro_batch_size_per_gpu": 2,
}


def _fits(_: Candidate) -> bool:
    return True


def _outcome(*, fits: bool, phase: Phase = Phase.FIRST_STEP) -> Outcome:
    """Return an outcome; one that "fits" crashed for another reason, which needs no numbers."""
    return Outcome(
        status=Status.CRASHED if fits else Status.OVER_CEILING,
        evaluator="measured",
        failure=Failure(reason="as if", phase=phase),
    )


def _climb(
    baseline: Baseline, fits: Callable[[Candidate], bool], *, phase: Phase = Phase.FIRST_STEP
) -> list[Candidate]:
    """Return what is tried until the baseline knows."""
    outcomes: dict[str, Outcome] = {}
    tried = []
    while (attempt := baseline.next_attempt(outcomes, 2)) is not None:
        tried.append(attempt)
        outcomes[attempt.identity(2)] = _outcome(fits=fits(attempt), phase=phase)
    return tried


def _baseline(name: str, *, per_rank: int, base: dict[str, Any] | None = None) -> Baseline:
    base = base or {}
    workload = tiny_workload(global_batch_size=2 * per_rank, base=base)
    space = load_space("zero").bind(workload, base)
    return next(b for b in first_trials(base, space=space, workload=workload) if b.name == name)


def _need(candidate: Candidate, *, checkpointed_share: float) -> float:
    share = checkpointed_share if candidate.model_settings["activation_checkpointing"] else 1.0
    return share * int(candidate.ds_config[MICRO_BATCH])


@given(
    exponent=st.integers(0, 7),
    odd=st.sampled_from([1, 3, 5]),
    room=st.floats(0.1, 1000),
    checkpointed_share=st.floats(0.05, 1.0),
)
def test_the_largest_micro_batch_that_fits_is_found_by_bisection(
    exponent: int, odd: int, room: float, checkpointed_share: float
) -> None:
    baseline = _baseline("deepspeed-stage2", per_rank=odd * 2**exponent)

    def fits(candidate: Candidate) -> bool:
        return _need(candidate, checkpointed_share=checkpointed_share) <= room

    tried = _climb(baseline, fits)
    by_linear_scan = next(filter(fits, [*baseline.plain, *baseline.checkpointed]), None)
    found = max(
        filter(fits, tried),
        key=lambda c: (
            not c.model_settings["activation_checkpointing"],
            c.ds_config[MICRO_BATCH],
        ),
        default=None,
    )
    assert found == by_linear_scan
    at_most = 2 + ceil(log2(len(baseline.plain)))
    for ladder in (baseline.plain, baseline.checkpointed):
        assert sum(candidate in ladder for candidate in tried) <= at_most
    assert len(tried) <= at_most + 2  # a ladder without a rung that fits costs its two ends


@pytest.mark.parametrize("phase", [Phase.BUILD, Phase.INIT])
def test_a_baseline_whose_states_alone_do_not_fit_costs_one_trial(phase: Phase) -> None:
    baseline = _baseline("deepspeed-stage2", per_rank=64)
    assert len(_climb(baseline, lambda _: False, phase=phase)) == 1


def test_a_baseline_that_fits_at_once_costs_one_trial() -> None:
    assert len(_climb(_baseline("deepspeed-stage2", per_rank=64), _fits)) == 1


def test_the_rungs_are_halves_that_divide_the_sequences_of_a_rank() -> None:
    ladder = _baseline("deepspeed-stage0", per_rank=24).plain
    assert [candidate.ds_config[MICRO_BATCH] for candidate in ladder] == [24, 12, 6, 3, 1]
    ladder = _baseline("hf-auto", per_rank=24).plain
    assert [candidate.ds_config[MICRO_BATCH] for candidate in ladder] == [8, 4, 2, 1]


def test_a_base_without_a_free_micro_batch_is_tried_as_it_is_and_then_checkpointed() -> None:
    tried = _climb(_baseline("base", per_rank=8, base=ODD_BASE), lambda _: False)
    assert [c.model_settings["activation_checkpointing"] for c in tried] == [False, True]
    assert [c.ds_config[MICRO_BATCH] for c in tried] == [2, 2]


def test_an_auto_micro_batch_starts_where_hugging_face_does() -> None:
    base = {MICRO_BATCH: "auto", "zero_optimization": {"stage": 1}}
    ladder = _baseline("base", per_rank=32, base=base).plain
    assert [candidate.ds_config[MICRO_BATCH] for candidate in ladder] == [8, 4, 2, 1]


def test_the_first_trials_are_the_base_hugging_face_and_deepspeeds_defaults() -> None:
    workload = tiny_workload()
    space = load_space("zero").bind(workload, {})
    named = {b.name: b.plain[0] for b in first_trials({}, space=space, workload=workload)}
    assert list(named) == ["hf-auto", "deepspeed-stage0", "deepspeed-stage2", "deepspeed-stage3"]
    for stage in (0, 2, 3):
        config = named[f"deepspeed-stage{stage}"].ds_config
        assert config["zero_optimization"] == {"stage": stage}
    flat = dotted.flatten(named["hf-auto"].ds_config)
    assert auto_buckets(128).items() <= flat.items()
    assert flat["zero_optimization.stage"] == 3


def test_a_base_outside_the_space_is_run_and_stored_as_it_was_given(tmp_path: Path) -> None:
    study = setting(tmp_path / "s", base=ODD_BASE).search(trials=1)
    (record,) = study.records()
    assert record.candidate.source == "base"
    given_keys = dotted.flatten(ODD_BASE)
    stored = dotted.flatten(record.candidate.ds_config)
    assert {key: stored[key] for key in given_keys} == given_keys
    # The rest comes from the workload; without a section for bf16 or fp16 it is fp32.
    assert {key.partition(".")[0] for key in stored.keys() - given_keys.keys()} == {
        "train_batch_size",
        "gradient_accumulation_steps",
        "optimizer",
        "gradient_clipping",
    }
    assert record.candidate.values == {
        "zero_optimization.stage": 2,
        "train_micro_batch_size_per_gpu": 2,
        "model.activation_checkpointing": False,
    }


def test_a_search_begins_with_the_first_trials_in_order(tmp_path: Path) -> None:
    base = {"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 1}
    here = setting(tmp_path / "s", base=base, ceiling_bytes=10_000 * MIB)
    records = here.search(trials=7).records()
    assert [record.candidate.source for record in records] == [
        "base",
        "hf-auto",
        "deepspeed-stage0",
        "deepspeed-stage2",
        "deepspeed-stage3",
        "sampled",
        "sampled",
    ]


def test_a_search_climbs_down_to_the_largest_baseline_that_fits(tmp_path: Path) -> None:
    study = setting(tmp_path / "s").search(trials=12)
    tried = [
        (record.candidate.ds_config[MICRO_BATCH], record.outcome and record.outcome.status)
        for record in study.records()
        if record.candidate.source == "deepspeed-stage0"
    ]
    assert tried == [
        (8, Status.OVER_CEILING),
        (1, Status.COMPLETE),
        (4, Status.COMPLETE),
    ]
