"""The exported ds_config: the user's keys survive, whatever they are."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import dotted
from autotune.evaluate import TrialRequest
from autotune.export.record import exported_ds_config
from autotune.search.baselines import first_trials
from autotune.search.progress import Silent
from autotune.space import load_space
from autotune.space.proposal import Scalar
from autotune.study.candidate import TrialRecord, candidate_of_proposal
from autotune.study.confirmation import Confirmation
from autotune.study.view import StudyView
from tests.search.setting import setting

WORKLOAD_KEYS = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "bf16",
    "fp16",
    "optimizer",
}
SOURCES = ["sampled", "base", "hf-auto", "deepspeed-stage0", "deepspeed-stage3"]
POINT: dict[str, Scalar] = {
    "zero_optimization.stage": 2,
    "zero_optimization.overlap_comm": True,
    "zero_optimization.offload_optimizer.device": "cpu",
    "zero_optimization.reduce_bucket_size": 4096,
    "train_micro_batch_size_per_gpu": 2,
    "model.activation_checkpointing": True,
}
SEARCHED = {parameter.key for parameter in load_space("zero").parameters}

_values = st.one_of(
    st.just("auto"), st.booleans(), st.integers(0, 10**10), st.text("abc/", min_size=1), st.none()
)
_keys = st.text("abcdefg_", min_size=1, max_size=6)
_sections = st.dictionaries(_keys, st.one_of(_values, st.lists(_values, max_size=2)), max_size=3)
_zero = st.fixed_dictionaries(
    {"stage": st.integers(0, 3)},
    optional={
        "reduce_bucket_size": st.sampled_from(["auto", 7, 5e8]),
        "round_robin_gradients": st.booleans(),
        "zero_hpz_partition_size": st.integers(1, 4),
        "stage3_gather_16bit_weights_on_model_save": st.just("auto"),
        "cpu_offload": st.booleans(),
        "offload_optimizer": st.fixed_dictionaries(
            {"device": st.just("cpu"), "pin_memory": st.booleans()}
        ),
        "of_the_user": _sections,
    },
)
_bases = st.fixed_dictionaries(
    {"zero_optimization": _zero},
    optional={
        "steps_per_print": st.integers(1, 100),
        "wandb": _sections,
        "scheduler": st.just({"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}),
        "optimizer": st.just({"type": "Adam", "params": {"lr": "auto", "betas": [0.8, 0.99]}}),
        "bf16": st.sampled_from([{"enabled": "auto"}, {"enabled": True, "mine": 3}]),
        "train_batch_size": st.sampled_from([16, "auto"]),
        "x_custom": _sections,
    },
)


def _exported(base: dict[str, Any], source: str) -> dict[str, Any]:
    """Return what is exported if the confirmation ends with some trial."""
    here = setting(Path("never-written"), base=base, ceiling_bytes=2**50)
    sampled = candidate_of_proposal(
        here.space.canonical(POINT), here.space, base=base, workload=here.workload
    )
    baselines = first_trials(base, space=here.space, workload=here.workload)
    candidates = {"sampled": sampled} | {b.name: b.plain[0] for b in baselines}
    candidate = candidates[source]
    request = TrialRequest(
        number=0,
        label="as-if",
        ds_config=candidate.ds_config,
        model_settings=candidate.model_settings,
        whole_steps=True,
    )
    run = here.evaluator.evaluate(request, Silent().marked)
    confirmation = Confirmation(winner=0, baseline=None, winner_runs=(run, run), baseline_runs=())
    record = TrialRecord(number=0, candidate=candidate, outcome=run)
    view = StudyView(name="s", setup=here.setup(), records=(record,), confirmations=(confirmation,))
    return exported_ds_config(view)


@settings(max_examples=100, deadline=None)
@given(base=_bases, source=st.sampled_from(SOURCES))
def test_every_key_that_is_not_searched_survives(base: dict[str, Any], source: str) -> None:
    exported = _exported(base, source)
    flat = dotted.flatten(exported)
    for key, value in dotted.flatten(base).items():
        if key in SEARCHED or key.partition(".")[0] in WORKLOAD_KEYS:
            continue
        if key == "zero_optimization.cpu_offload":
            # Another name of a searched key: DeepSpeed refuses both side by side.
            assert source == "base" or key not in flat
            continue
        assert flat[key] == value, key


@pytest.mark.parametrize("source", SOURCES)
def test_auto_stays_where_only_training_arguments_know(source: str) -> None:
    base = {
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}},
        "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": "auto"},
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
    }
    exported = _exported(base, source)
    autos = {key for key, value in dotted.flatten(exported).items() if value == "auto"}
    assert autos == {
        "optimizer.params.lr",
        "optimizer.params.weight_decay",
        "scheduler.params.warmup_max_lr",
    }
    micro = exported["train_micro_batch_size_per_gpu"]
    assert micro * exported["gradient_accumulation_steps"] * 2 == exported["train_batch_size"]
