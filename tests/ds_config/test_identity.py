"""Equal runs have one identity, others do not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import dotted
from autotune.ds_config.fields.table import known_fields
from autotune.ds_config.identity import identity
from autotune.ds_config.inert import inert_keys

ZERO = "zero_optimization"
BATCH = {
    "train_batch_size": 16,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
}


def of(config: dict[str, Any], **model_settings: Any) -> str:
    return identity(config, model_settings, world_size=2)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (
            {ZERO: {"stage": 3, "prefetch_bucket_size": 9}},
            {ZERO: {"stage": 3, "stage3_prefetch_bucket_size": 9}},
        ),
        (
            {ZERO: {"stage": 1, "cpu_offload": True}},
            {ZERO: {"stage": 1, "offload_optimizer": {"device": "cpu"}}},
        ),
        ({"bfloat16": {"enabled": True}}, {"bf16": {"enabled": True}}),
        ({ZERO: True}, {ZERO: {"stage": 1}}),
        ({ZERO: {"stage": 2, "reduce_bucket_size": 5e8}}, {ZERO: {"stage": 2}}),
        (
            {ZERO: {"stage": 2, "reduce_bucket_size": 1e6}},
            {ZERO: {"stage": 2, "reduce_bucket_size": 1_000_000}},
        ),
        ({ZERO: {"stage": 3, "overlap_comm": True}}, {ZERO: {"stage": 3}}),
        ({ZERO: {"stage": 2, "overlap_comm": False}}, {ZERO: {"stage": 2}}),
        (
            {ZERO: {"stage": 3, "offload_param": None}},
            {ZERO: {"stage": 3, "offload_param": {"device": "none"}}},
        ),
        ({ZERO: {"stage": 1, "sub_group_size": 7}}, {ZERO: {"stage": 1}}),
        ({ZERO: {"stage": 0}, "steps_per_print": None}, {}),
        (BATCH, {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2}),
        (BATCH, {"train_batch_size": 16, "gradient_accumulation_steps": 4}),
        (BATCH, {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}),
    ],
)
def test_configs_that_deepspeed_reads_alike_are_one(
    left: dict[str, Any], right: dict[str, Any]
) -> None:
    assert of(left) == of(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({ZERO: {"stage": 1}}, {ZERO: {"stage": 2}}),
        ({ZERO: {"stage": 3, "overlap_comm": False}}, {ZERO: {"stage": 3}}),
        ({ZERO: {"stage": 1, "overlap_comm": True}}, {ZERO: {"stage": 1}}),
        ({ZERO: {"stage": 2, "zenflow": {}}}, {ZERO: {"stage": 2}}),
        ({ZERO: {"stage": 2, "zenflow": {"topk_ratio": 0.1}}}, {ZERO: {"stage": 2}}),
        ({"gradient_clipping": None}, {}),
        ({"optimizer": {"params": {"lr": 1}}}, {"optimizer": {"params": {"lr": 2}}}),
        ({"unknown": 1}, {}),
        (BATCH, BATCH | {"train_batch_size": 32, "gradient_accumulation_steps": 8}),
    ],
)
def test_configs_that_run_differently_are_two(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert of(left) != of(right)


def test_the_model_settings_tell_runs_apart() -> None:
    assert of({}, activation_checkpointing=True) != of({})
    assert of({}, activation_checkpointing=False) == of({})
    assert of({}, attn_implementation="sdpa") != of({}, attn_implementation="eager")


BOOLS_AND_INTS = sorted(
    key
    for key, field in known_fields().items()
    if key.startswith(f"{ZERO}.") and field.type in ("bool", "int") and not field.choices
    if not field.removed and not field.deprecated and ".zenflow." not in key
)


@settings(deadline=None)
@given(
    st.integers(0, 3),
    st.dictionaries(st.sampled_from(BOOLS_AND_INTS), st.integers(1, 10).map(lambda n: 2 * n)),
)
def test_inert_keys_and_defaults_make_no_difference(stage: int, sizes: dict[str, int]) -> None:
    flat = {
        key: size > 10 if known_fields()[key].type == "bool" else size
        for key, size in sizes.items()
    } | {f"{ZERO}.stage": stage}
    inert = inert_keys(flat, world_size=2)
    acting = {key: value for key, value in flat.items() if key not in inert}
    assert of(dotted.updated({}, flat)) == of(dotted.updated({}, acting))
    told = {key: value for key, value in acting.items() if value != known_fields()[key].default} | {
        f"{ZERO}.stage": stage
    }
    assert of(dotted.updated({}, told)) == of(dotted.updated({}, acting))
