import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import WorkloadError
from autotune.job.model_shape import load_model_shape
from autotune.job.workload import Workload
from tests.job.workloads import resolve_workload

TINY, SEVEN = load_model_shape("tiny"), load_model_shape("7b")


def _resolve(base: dict[str, Any] | None = None, **options: Any) -> Workload:
    options = {"gpus": 2} | options
    return resolve_workload(options.pop("model", SEVEN), base=base or {}, **options)


def test_facts_without_a_source_come_from_the_preset() -> None:
    workload = _resolve()
    assert (workload.seq_len, workload.global_batch_size, workload.precision) == (2048, 64, "bf16")
    assert workload.optimizer["type"] == "AdamW"
    assert workload.gradient_clipping == 1.0
    presets = ("seq_len", "global_batch_size", "precision", "optimizer")
    assert {workload.origin[name] for name in presets} == {"preset"}


def test_the_tiny_model_has_a_tiny_job() -> None:
    workload = _resolve(model=TINY)
    assert (workload.seq_len, workload.global_batch_size) == (128, 16)


def test_a_flag_beats_the_base_and_the_base_beats_the_preset() -> None:
    base = {"train_batch_size": 8, "fp16": {"enabled": True}, "gradient_clipping": 0.5}
    workload = _resolve(base)
    assert (workload.global_batch_size, workload.precision) == (8, "fp16")
    assert workload.gradient_clipping == 0.5
    assert workload.origin["global_batch_size"] == "ds_config"
    flagged = _resolve(base, global_batch_size=4, precision="fp32")
    assert (flagged.global_batch_size, flagged.precision) == (4, "fp32")
    assert flagged.origin["precision"] == "option"


@pytest.mark.parametrize(
    ("base", "batch"),
    [
        ({"train_batch_size": 32}, 32),
        ({"train_micro_batch_size_per_gpu": 4}, 8),
        ({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}, 24),
        ({"gradient_accumulation_steps": 4}, 64),
        # What the Trainer fills in, on each rank.
        ({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}, 16),
        (
            {
                "train_batch_size": 24,
                "train_micro_batch_size_per_gpu": 4,
                "gradient_accumulation_steps": 3,
            },
            24,
        ),
    ],
)
def test_the_base_gives_the_batch_that_deepspeed_would_complete(
    base: dict[str, Any], batch: int
) -> None:
    assert _resolve(base).global_batch_size == batch


@pytest.mark.parametrize(
    "base",
    [
        {"train_batch_size": 24, "train_micro_batch_size_per_gpu": 5},
        {"train_batch_size": 24, "gradient_accumulation_steps": 5},
        {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 4,
            "gradient_accumulation_steps": 2,
        },
    ],
)
def test_batch_sizes_that_do_not_multiply_are_refused_unless_a_flag_decides(
    base: dict[str, Any],
) -> None:
    with pytest.raises(WorkloadError, match=r"--base: train_batch_size=\d+ is not .* x 2 ranks"):
        _resolve(base)
    assert _resolve(base, global_batch_size=40).global_batch_size == 40


@pytest.mark.parametrize(
    ("base", "precision"),
    [
        ({}, "bf16"),
        ({"bf16": {"enabled": True}}, "bf16"),
        ({"bfloat16": {"enabled": True}}, "bf16"),
        ({"fp16": {"enabled": True}}, "fp16"),
        ({"bf16": {"enabled": False}}, "fp32"),
        ({"fp16": {"enabled": False}, "bf16": {"enabled": True}}, "bf16"),
        ({"fp16": {"enabled": "auto"}}, "bf16"),
    ],
)
def test_the_base_gives_the_precision(base: dict[str, Any], precision: str) -> None:
    assert _resolve(base).precision == precision


def test_cpu_ranks_use_the_optimizer_that_needs_no_compiler() -> None:
    assert _resolve(device_kind="cpu").optimizer["params"]["torch_adam"] is True
    base = {"optimizer": {"type": "AdamW", "params": {"torch_adam": False}}}
    assert _resolve(base, device_kind="cpu").optimizer["params"]["torch_adam"] is False


@given(batch=st.integers(1, 10_000), gpus=st.integers(1, 64))
def test_a_batch_that_does_not_divide_names_the_nearest_that_do(batch: int, gpus: int) -> None:
    if batch % gpus == 0:
        assert _resolve(gpus=gpus, global_batch_size=batch).sequences_per_rank * gpus == batch
        return
    with pytest.raises(WorkloadError, match=f"not divisible by {gpus} ranks; nearest: ") as raised:
        _resolve(gpus=gpus, global_batch_size=batch)
    named = [int(n) for n in str(raised.value).rpartition("nearest: ")[2].split(" or ")]
    assert all(n % gpus == 0 and n > 0 and abs(n - batch) < gpus for n in named)


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(WorkloadError, match="precision='int8'") as raised:
        replace(_resolve(), precision="int8", global_batch_size=3)
    assert len(raised.value.faults) == 2


def test_learned_positions_end_the_sequence() -> None:
    gpt2 = load_model_shape("gpt2")
    assert _resolve(model=gpt2).seq_len == 1024
    with pytest.raises(WorkloadError, match="gpt2 has 1024 learned positions; use --seq-len 1024"):
        _resolve(model=gpt2, seq_len=1025)


def test_a_workload_survives_json() -> None:
    workload = _resolve({"data_types": {"grad_accum_dtype": "fp32"}})
    again = Workload.from_json(json.loads(json.dumps(workload.to_json())))
    assert again == workload
    assert again.origin == workload.origin


def test_tokens_of_a_step_are_those_of_all_ranks() -> None:
    assert _resolve(gpus=4, seq_len=10, global_batch_size=8).tokens_per_step == 80
