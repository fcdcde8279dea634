"""The table of fields: whole, found without importing DeepSpeed, and easy to ask.

That it is what the installed DeepSpeed has is tested in `test_version`.
"""

import json
import os
import subprocess
import sys

import pytest

from autotune.ds_config.fields.table import (
    default_of,
    documented_key,
    field_of,
    known_fields,
    nearest,
)

ZERO = "zero_optimization"
CONSTANTS = [
    "runtime.constants",
    "runtime.swap_tensor.constants",
    "runtime.data_pipeline.constants",
    "runtime.model_checkpointing.constants",
    "runtime.activation_checkpointing.config",
    "profiling.constants",
    "autotuning.constants",
    "comm.constants",
]
"""Where DeepSpeed names keys, each beside its default."""


def run_python(code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"DS_ACCELERATOR": "cpu"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


def test_every_constant_that_deepspeed_gives_a_default_is_in_the_table() -> None:
    code = f"""
import importlib, json
names = []
for path in {CONSTANTS}:
    module = importlib.import_module("deepspeed." + path)
    names += [getattr(module, n) for n in dir(module) if hasattr(module, n + "_DEFAULT")]
print("NAMES" + json.dumps(names))
"""
    # DeepSpeed greets on stdout, so the names are looked for behind a mark.
    names = set(json.loads(run_python(code).partition("NAMES")[2]))
    assert len(names) > 80
    assert names - {key.rsplit(".", 1)[-1] for key in known_fields()} == set()


def test_reading_the_table_imports_neither_torch_nor_deepspeed() -> None:
    code = (
        "import sys; from autotune.ds_config.fields.table import known_fields; known_fields();"
        "print(sorted({'torch', 'deepspeed', 'pydantic'} & set(sys.modules)))"
    )
    assert run_python(code).strip() == "[]"


@pytest.mark.parametrize(
    ("key", "type_", "default"),
    [
        (f"{ZERO}.stage", "int", 0),
        (f"{ZERO}.reduce_bucket_size", "int", 500_000_000),
        (f"{ZERO}.offload_optimizer.device", "str", "none"),
        (f"{ZERO}.offload_param", "section", None),
        (f"{ZERO}.zenflow.topk_ratio", "float", 0.1),
        ("bf16.enabled", "bool", False),
        ("fp16.loss_scale", "float", 0),
        ("gradient_clipping", "float", 1.0),
        ("train_batch_size", "int", None),
        ("aio.queue_depth", "int", 8),
        ("activation_checkpointing.partition_activations", "bool", False),
        ("comms_logger.prof_all", "bool", True),
        ("tensorboard.job_name", "str", "DeepSpeedJobName"),
        ("flops_profiler.module_depth", "int", -1),
        ("compile.deepcompile", "bool", False),
        ("data_types.grad_accum_dtype", "str", None),
        ("checkpoint.writer.io_buffer_size", "int", 67_108_864),
        ("timers.throughput.synchronized", "bool", True),
        ("data_efficiency.data_sampling.num_epochs", "int", 1000),
        ("expert_parallel.autoep_size", "int", 1),
        ("optimizer.type", "str", None),
    ],
)
def test_fields_of_every_kind_of_section_are_known(key: str, type_: str, default: object) -> None:
    field = known_fields()[key]
    assert (field.type, field.default) == (type_, default)


def test_a_field_answers_to_all_its_names() -> None:
    documented = f"{ZERO}.stage3_max_live_parameters"
    assert documented_key(f"{ZERO}.max_live_parameters") == documented
    assert default_of(f"{ZERO}.max_live_parameters") == default_of(documented) == 1_000_000_000
    assert documented_key("tensor_parallel.tensor_parallel.tp_size") == "tensor_parallel.tp.tp_size"


def test_any_key_stands_below_an_open_section_and_none_below_a_closed_one() -> None:
    assert field_of("optimizer.params.betas") is not None
    assert field_of("bf16.betas") is None
    assert field_of("bf16.enabled.betas") is None
    with pytest.raises(KeyError, match=r"bf16\.betas"):
        default_of("bf16.betas")


def test_deprecated_and_removed_fields_say_what_to_do() -> None:
    assert known_fields()[f"{ZERO}.cpu_offload"].successor == f"{ZERO}.offload_optimizer"
    assert "has been removed" in (known_fields()["elasticity"].removed or "")
    assert "MiCS" in (known_fields()[f"{ZERO}.mics_shard_size"].removed or "")


def test_the_known_keys_can_be_listed() -> None:
    printed = run_python("from autotune.ds_config.fields.table import main; main()").splitlines()
    assert f"{ZERO}.reduce_bucket_size  int  500000000" in printed
    assert not [line for line in printed if line.startswith(("elasticity", f"{ZERO}.cpu_offload"))]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (f"{ZERO}.reduce_bucket", f"{ZERO}.reduce_bucket_size"),
        ("overlap_comm", f"{ZERO}.overlap_comm"),
        ("zero_optimisation.stage", f"{ZERO}.stage"),
        (f"{ZERO}.max_live_params", f"{ZERO}.stage3_max_live_parameters"),
        ("gradient_accumulation_step", "gradient_accumulation_steps"),
        ("bf16.enable", "bf16.enabled"),
    ],
)
def test_the_nearest_name_of_a_misspelling_is_the_intended_one(wrong: str, right: str) -> None:
    assert nearest(wrong)[0] == right


def test_nothing_is_near_to_nonsense() -> None:
    assert nearest("qqqq.zzzz") == ()


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        (f"{ZERO}.stage", 4, "must be one of 0, 1, 2, 3"),
        (f"{ZERO}.reduce_bucket_size", 0, "must be more than 0"),
        (f"{ZERO}.reduce_bucket_size", 1, None),
        (f"{ZERO}.sub_group_size", -1, "must be at least 0"),
        (f"{ZERO}.offload_optimizer.ratio", 1.5, "must be at most 1.0"),
        (f"{ZERO}.zenflow.topk_ratio", 1.0, "must be less than 1.0"),
        ("communication_data_type", "FP32", None),
        ("communication_data_type", "fp8", "must be one of fp16, bf16, fp32"),
        ("checkpoint.writer.type", "fast", None),
        ("data_types.grad_accum_dtype", None, None),
    ],
)
def test_limits_are_deepspeeds(key: str, value: object, fault: str | None) -> None:
    assert known_fields()[key].limit_fault(value) == fault
