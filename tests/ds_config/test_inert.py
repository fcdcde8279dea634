"""Keys that cannot act: the table against DeepSpeed's source, and against DeepSpeed itself."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import dotted
from autotune.ds_config.fields.table import Field, field_of, known_fields
from autotune.ds_config.inert import RULES, inert_keys

ZERO = "zero_optimization."


def inert(zero: Mapping[str, Any], *, world_size: int | None = None, **rest: Any) -> set[str]:
    """Return the inert keys of a `zero_optimization` section, without their prefix."""
    config = dotted.flatten({"zero_optimization": zero, **rest})
    keys = inert_keys(config, world_size=world_size)
    return {key.removeprefix(ZERO) for key in keys}


OFFLOAD_OPTIMIZER = {"offload_optimizer": {"device": "cpu"}}
BF16_OPTIMIZER: dict[str, Any] = {
    "bf16": {"enabled": True},
    "data_types": {"grad_accum_dtype": "fp32"},
}


@pytest.mark.parametrize(
    ("key", "value", "stages"),
    [
        ("reduce_bucket_size", 1000, {1, 2, 3}),
        ("reduce_scatter", False, {1, 2, 3}),
        ("contiguous_gradients", False, {1, 2, 3}),
        ("overlap_comm", True, {1, 2, 3}),
        ("round_robin_gradients", True, {1, 2}),
        ("use_multi_rank_bucket_allreduce", False, {1, 2}),
        ("allgather_bucket_size", 1000, set()),
        ("allgather_partitions", False, set()),
        ("sub_group_size", 1000, {3}),
        ("stage3_prefetch_bucket_size", 1000, {3}),
        ("prefetch_bucket_size", 1000, {3}),
        ("stage3_max_live_parameters", 1000, {3}),
        ("max_live_parameters", 1000, {3}),
        ("stage3_max_reuse_distance", 1000, {3}),
        ("stage3_param_persistence_threshold", 1000, {3}),
        ("zero_hpz_partition_size", 2, {3}),
        ("zero_quantized_weights", True, {3}),
        ("zero_quantized_gradients", True, {3}),
        ("cpu_offload_param", True, {3}),
    ],
)
def test_a_key_acts_at_its_stages_only(key: str, value: Any, stages: set[int]) -> None:
    acting = {stage for stage in range(4) if key not in inert({"stage": stage, key: value})}
    assert acting == stages


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        ({"stage": 2, "contiguous_gradients": False} | OFFLOAD_OPTIMIZER, {"contiguous_gradients"}),
        ({"stage": 3, "contiguous_gradients": False} | OFFLOAD_OPTIMIZER, set()),
        ({"stage": 1, "contiguous_gradients": False, "reduce_scatter": False}, {"reduce_scatter"}),
        (
            {"stage": 2, "reduce_scatter": False, "use_multi_rank_bucket_allreduce": False},
            {"use_multi_rank_bucket_allreduce"},
        ),
        ({"stage": 2, "ignore_unused_parameters": False}, {"ignore_unused_parameters"}),
        ({"stage": 2, "ignore_unused_parameters": False} | OFFLOAD_OPTIMIZER, set()),
        (
            {"stage": 3, "offload_optimizer": {"pin_memory": False}},
            {"offload_optimizer.pin_memory"},
        ),
        (
            {"stage": 3, "offload_param": {"device": "cpu", "buffer_count": 3}},
            {"offload_param.buffer_count"},
        ),
        ({"stage": 3, "offload_param": {"device": "nvme", "buffer_count": 3}}, set()),
        (
            {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/n"}},
            {"offload_optimizer.nvme_path"},
        ),
        (
            {"stage": 3, "prefetch_bucket_size": 0, "stage3_max_live_parameters": 5},
            {"stage3_max_live_parameters"},
        ),
        (
            {"stage": 3, "stage3_allgather_sequential": True, "prefetch_bucket_size": 5},
            {"prefetch_bucket_size"},
        ),
        (
            {"stage": 3, "prefetch_bucket_size": 5, "stage3_prefetch_bucket_size": 6},
            {"prefetch_bucket_size"},
        ),
    ],
)
def test_a_key_acts_only_beside_what_it_serves(zero: dict[str, Any], expected: set[str]) -> None:
    assert inert(zero) == expected


def test_fp32_accumulation_makes_bf16_stage_1_deaf_to_buckets() -> None:
    zero = {"stage": 1, "reduce_bucket_size": 1000, "overlap_comm": True}
    assert inert(zero, **BF16_OPTIMIZER) == {"reduce_bucket_size", "overlap_comm"}
    assert inert(zero, bf16={"enabled": True}) == set()
    assert inert(zero | {"stage": 2}, **BF16_OPTIMIZER) == set()


def test_one_rank_has_nothing_to_deal_round() -> None:
    zero = {"stage": 2, "round_robin_gradients": True}
    assert inert(zero, world_size=1) == {"round_robin_gradients"}
    assert inert(zero, world_size=2) == inert(zero) == set()


def test_nvme_settings_act_with_nvme_only() -> None:
    aio = {"block_size": 4096}
    assert inert({"stage": 3}, aio=aio) == {"aio.block_size"}
    assert inert({"stage": 3, "offload_param": {"device": "nvme"}}, aio=aio) == set()
    assert inert({"stage": 3}, aio=aio, checkpoint={"writer": {"type": "fast"}}) == set()


@pytest.mark.parametrize(
    "zero",
    [
        {"stage": 2, "allgather_bucket_size": 7},
        {"stage": 1, "offload_optimizer": {"ratio": 0.5}},
        {"stage": 0, "offload_param": {"device": "disk"}},
        {"stage": 0, "sub_group_size": -1},
        {"stage": 0, "compute_grad_norm": False},
    ],
)
def test_a_value_that_deepspeed_refuses_is_never_inert(zero: dict[str, Any]) -> None:
    assert inert(zero) == set()


@pytest.mark.parametrize("stage", ["auto", 7, None, "two"])
def test_an_impossible_stage_judges_nothing_that_depends_on_it(stage: Any) -> None:
    assert inert({"stage": stage, "sub_group_size": 10}) == set()


def test_of_a_part_of_a_config_only_what_it_says_counts() -> None:
    part = {f"{ZERO}stage3_prefetch_bucket_size": 10}
    assert set(inert_keys(part)) == set(part)
    assert inert_keys(part, partial=True) == {}
    assert set(inert_keys(part | {f"{ZERO}stage": 2}, partial=True)) == set(part)


def test_every_rule_names_known_keys() -> None:
    names = {key.removesuffix(".*") for rule in RULES for key in rule.keys}
    assert {name for name in names if field_of(name) is None} == set()


def test_every_source_of_a_rule_is_a_function_of_deepspeed() -> None:
    spec = importlib.util.find_spec("deepspeed")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    missing = []
    for rule in RULES:
        for source in rule.source:
            file, _, function = source.partition(": ")
            text = (package / file).read_text(encoding="utf-8")
            if not re.search(rf"\bdef {function}\b", text):
                missing.append(source)
    assert missing == []


def other_value(field: Field) -> Any:
    """Return a value other than the default that DeepSpeed accepts; None if none comes to mind."""
    if field.choices:
        return next((value for value in field.choices if value != field.default), None)
    if field.type == "bool":
        return not field.default
    if field.type == "int" and field.default is not None:
        return field.default // 2 if field.default > 1 else field.default + 1
    if field.type == "float":
        return 0.5
    return {"str": "x", "list": ["x"]}.get(field.type)


SETTABLE = {
    key: value
    for key, field in known_fields().items()
    if key.startswith(ZERO) and not field.removed and not field.deprecated
    if ".zenflow" not in key and (value := other_value(field)) is not None
}


@settings(deadline=None)
@given(
    st.integers(0, 3),
    st.sets(st.sampled_from(sorted(set(SETTABLE) - {f"{ZERO}stage"})), max_size=12),
)
def test_leaving_inert_keys_out_leaves_no_inert_key(stage: int, keys: set[str]) -> None:
    flat = {f"{ZERO}stage": stage} | {key: SETTABLE[key] for key in keys}
    left = {key: value for key, value in flat.items() if key not in inert_keys(flat)}
    assert inert_keys(left) == {}


# Configs for which many keys are inert, each for its own reasons.
SMALL = {"reduce_bucket_size": 300}
PERSISTENT = {"stage3_param_persistence_threshold": 20} | SMALL
CONTEXTS: dict[str, dict[str, Any]] = {
    "stage 0": {"zero_optimization": {"stage": 0}},
    "stage 1": {"zero_optimization": {"stage": 1} | SMALL},
    "stage 1, bf16 optimizer": {"zero_optimization": {"stage": 1}, **BF16_OPTIMIZER},
    "stage 1, not contiguous": {
        "zero_optimization": {"stage": 1, "contiguous_gradients": False} | SMALL
    },
    "stage 2": {"zero_optimization": {"stage": 2} | SMALL},
    "stage 2, offload": {"zero_optimization": {"stage": 2} | OFFLOAD_OPTIMIZER | SMALL},
    "stage 2, no scatter": {"zero_optimization": {"stage": 2, "reduce_scatter": False} | SMALL},
    "stage 3": {"zero_optimization": {"stage": 3} | PERSISTENT},
    "stage 3, no prefetch": {
        "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 0} | PERSISTENT
    },
    "stage 3, not contiguous": {
        "zero_optimization": {"stage": 3, "contiguous_gradients": False} | PERSISTENT
    },
    "stage 3, one by one, offload": {
        "zero_optimization": {
            "stage": 3,
            "stage3_allgather_sequential": True,
            "offload_param": {"device": "cpu"},
        }
        | OFFLOAD_OPTIMIZER
        | PERSISTENT
    },
}
# Values that make a difference in a model of three layers, for keys that do act there.
ACTING = [
    ("stage 1", "reduce_bucket_size", 100),
    ("stage 1", "contiguous_gradients", False),
    ("stage 1", "overlap_comm", True),
    ("stage 2", "reduce_scatter", False),
    ("stage 2", "round_robin_gradients", True),
    ("stage 2, offload", "reduce_bucket_size", 100),
    ("stage 3", "stage3_prefetch_bucket_size", 10),
    ("stage 3", "stage3_max_live_parameters", 10),
    ("stage 3", "sub_group_size", 100),
    ("stage 3", "stage3_param_persistence_threshold", 300),
    ("stage 3", "contiguous_gradients", False),
    ("stage 3, no prefetch", "stage3_max_reuse_distance", 10),
]


def with_inert_keys(context: dict[str, Any]) -> dict[str, Any]:
    """Return a config with every key that is inert in it, each at another value than before."""
    keys = {
        key: value
        for key, value in SETTABLE.items()
        if key not in dotted.flatten(context)
        and key in inert_keys(dotted.flatten(dotted.updated(context, {key: value})), world_size=2)
    }
    assert keys
    return dotted.updated(context, keys)


def test_deepspeed_trains_alike_with_and_without_inert_keys() -> None:
    acting = [
        dotted.updated(CONTEXTS[context], {f"{ZERO}{key}": value}) for context, key, value in ACTING
    ]
    plain = list(CONTEXTS.values())
    prints = fingerprints([*plain, *map(with_inert_keys, plain), *acting])
    assert not [p for p in prints if p.startswith("refused")]
    before = dict(zip(CONTEXTS, prints, strict=False))
    after = dict(zip(CONTEXTS, prints[len(plain) :], strict=False))
    assert after == before
    # The same eyes see a difference where a key does act.
    unseen = [
        (context, key)
        for (context, key, _), found in zip(ACTING, prints[2 * len(plain) :], strict=True)
        if found == before[context]
    ]
    assert unseen == []


def fingerprints(configs: list[dict[str, Any]]) -> list[str]:
    """Train with each config and return what `trace_training.py` saw.

    Stage 3 has a process of its own beside that of the other stages.
    """
    sharded = [config.get("zero_optimization", {}).get("stage") == 3 for config in configs]
    parts = [
        [config for config, is_sharded in zip(configs, sharded, strict=True) if is_sharded is part]
        for part in (False, True)
    ]
    with ThreadPoolExecutor() as threads:
        seen = [iter(prints) for prints in threads.map(_fingerprints_of_one_process, parts)]
    return [next(seen[is_sharded]) for is_sharded in sharded]


def _fingerprints_of_one_process(configs: list[dict[str, Any]]) -> list[str]:
    script = Path(__file__).with_name("trace_training.py")
    run = subprocess.run(
        [sys.executable, str(script)],
        input=json.dumps(configs),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    results: list[str] = json.loads(run.stdout)
    return results
