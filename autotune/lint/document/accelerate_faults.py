"""What Accelerate refuses in its YAML, and what it ignores.

Source: accelerate 1.15, commands/config/config_args.py (`ClusterConfig`), commands/launch.py and
utils/dataclasses.py: `_deepspeed_config_checks`.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from autotune.lint.document.accelerate import CPU_THREADS, FILE_KEY, SECTION, section_of
from autotune.lint.document.reading import Reading, finding
from autotune.lint.document.reading_rules import ACCELERATE
from autotune.lint.finding import Finding, Severity
from autotune.lint.format_value import format_value
from autotune.lint.rule import Fault
from autotune.lint.subject import Launch

TOP_LEVEL_KEYS = frozenset(
    {
        "command_file",
        "commands",
        "compute_environment",
        "debug",
        "deepspeed_config",
        "distributed_type",
        "downcast_bf16",
        "dynamo_backend",  # an old name that `process_config` converts
        "dynamo_config",
        "enable_cpu_affinity",
        "fp16",  # likewise
        "fp8_config",
        "fsdp_config",
        "gpu_ids",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "main_training_function",
        "megatron_lm_config",
        "mixed_precision",
        "mpirun_config",
        "num_machines",
        "num_processes",
        "parallelism_config",
        "rdzv_backend",
        "same_network",
        "tpu_env",
        "tpu_name",
        "tpu_use_cluster",
        "tpu_use_sudo",
        "tpu_vm",
        "tpu_zone",
        "use_cpu",
    }
)
"""Fields of `ClusterConfig`; `accelerate launch` refuses a file with any other."""
_NOT_BESIDE_A_FILE = (
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
    "offload_param_nvme_path",
    "offload_optimizer_nvme_path",
    "zero3_save_16bit_model",
)
SECTION_KEYS = frozenset(
    {
        *_NOT_BESIDE_A_FILE,
        "zero3_init_flag",
        "deepspeed_config_file",
        "deepspeed_hostfile",
        "deepspeed_exclusion_filter",
        "deepspeed_inclusion_filter",
        "deepspeed_multinode_launcher",
        "deepspeed_moe_layer_cls_names",
    }
)
"""Arguments of `accelerate launch` that concern DeepSpeed."""
_PRECISIONS = ("no", "fp16", "bf16", "fp8")
_DEEPSPEED = "distributed_type: DEEPSPEED"


def accelerate_faults(reading: Reading, launch: Launch) -> Iterator[Finding]:
    """Yield the faults of an Accelerate config that are not about DeepSpeed.

    A fault without a severity is an error.
    """
    value: Mapping[str, Any] = reading.value
    for fault in (
        *_top_level(value),
        *_precision(value.get("mixed_precision")),
        *_section(section_of(value)),
        *_beside_a_file(value),
        *_against_the_launch(value, launch),
    ):
        yield finding(
            ACCELERATE,
            fault.message,
            field=fault.field,
            at=reading.positions.get(fault.field),
            suggestion=fault.suggestion,
            severity=fault.severity,
        )


def _top_level(value: Mapping[str, Any]) -> Iterator[Fault]:
    for key, given in value.items():
        if key == CPU_THREADS:
            yield Fault(
                field=key,
                message=f"{key}={format_value(given)}: accelerate 1.15 has it as an option of "
                "accelerate launch only, and refuses a file with this key",
                suggestion=f"accelerate launch --{key} {given}",
            )
        elif key not in TOP_LEVEL_KEYS:
            yield Fault(
                field=key,
                message=f"{key}: no such key; accelerate refuses the file",
                suggestion=_nearest(key, TOP_LEVEL_KEYS) or "remove it",
            )
    kind = value.get("distributed_type")
    if kind is None:
        message = "distributed_type is missing: accelerate refuses the file"
        yield Fault(field="distributed_type", message=message, suggestion=_DEEPSPEED)
    elif kind != "DEEPSPEED":
        message = f"distributed_type={format_value(kind)}: accelerate then ignores {SECTION}"
        yield Fault(field="distributed_type", message=message, suggestion=_DEEPSPEED)


def _precision(precision: Any) -> Iterator[Fault]:
    if precision is False:
        # Not an error: many such files are launched with --mixed_precision, which takes precedence.
        yield Fault(
            field="mixed_precision",
            message="mixed_precision=no without quotes is false in YAML: `accelerate launch` "
            "refuses it unless --mixed_precision is given",
            suggestion="mixed_precision: 'no'",
            severity=Severity.NOTE,
        )
    elif precision is not None and str(precision).lower() not in _PRECISIONS:
        yield Fault(
            field="mixed_precision",
            message=f"mixed_precision={format_value(precision)}: "
            f"must be one of {', '.join(_PRECISIONS)}",
        )


def _section(section: Mapping[str, Any]) -> Iterator[Fault]:
    for key in section:
        if key not in SECTION_KEYS:
            yield Fault(
                field=f"{SECTION}.{key}",
                message=f"{SECTION}.{key}: no such key; accelerate ignores it",
                suggestion=_nearest(key, SECTION_KEYS)
                or "give it in a JSON file: deepspeed_config_file",
            )
    yield from _stage(section)
    for name in ("offload_optimizer", "offload_param"):
        if str(section.get(f"{name}_device")).lower() == "nvme":
            yield Fault(
                field=f"{SECTION}.{name}_nvme_path",
                message=f"{SECTION}.{name}_nvme_path does not reach DeepSpeed from a YAML: "
                'accelerate passes the folder "none"',
                suggestion="give the path in a JSON file: deepspeed_config_file",
                severity=Severity.WARNING,
            )


def _stage(section: Mapping[str, Any]) -> Iterator[Fault]:
    stage = section.get("zero_stage")
    if stage is None:
        return
    if not str(stage).isdigit():
        yield Fault(
            field=f"{SECTION}.zero_stage",
            message=f"{SECTION}.zero_stage={format_value(stage)}: must be one of 0, 1, 2, 3",
        )
    elif section.get("zero3_init_flag") is True and str(stage) != "3":
        yield Fault(
            field=f"{SECTION}.zero3_init_flag",
            message=f"{SECTION}.zero3_init_flag=true acts at stage 3 only; accelerate switches it "
            "off",
            suggestion=f"remove it, or set {SECTION}.zero_stage to 3",
            severity=Severity.NOTE,
        )


def _beside_a_file(value: Mapping[str, Any]) -> Iterator[Fault]:
    section = section_of(value)
    if "deepspeed_config_file" not in section:
        return
    beside = [f"{SECTION}.{key}" for key in _NOT_BESIDE_A_FILE if key in section]
    if value.get("mixed_precision") is not None:
        beside.append("mixed_precision")
    for key in beside:
        yield Fault(
            field=key,
            message=f"{key}: accelerate refuses it together with {FILE_KEY}",
            suggestion="remove it here and set it in that file",
        )


def _against_the_launch(value: Mapping[str, Any], launch: Launch) -> Iterator[Fault]:
    for key, planned, option in (
        ("num_processes", launch.gpus, "--gpus"),
        ("num_machines", launch.nodes, "--nodes"),
    ):
        written = value.get(key)
        if planned is not None and isinstance(written, int) and written not in (planned, -1):
            yield Fault(
                field=key,
                message=f"{key}={written}, but the planned run has {option} {planned}",
                suggestion=f"{key}: {planned}",
                severity=Severity.WARNING,
            )


def _nearest(key: str, known: frozenset[str]) -> str | None:
    matches = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
    return f"write {matches[0]}" if matches else None
