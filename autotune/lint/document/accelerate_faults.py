"""What Accelerate refuses in its own YAML, and what it passes over.

Source: accelerate 1.15, commands/config/config_args.py (`ClusterConfig`), commands/launch.py and
utils/dataclasses.py: `_deepspeed_config_checks`.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from autotune.lint.document.accelerate import FILE_KEY, SECTION, section_of
from autotune.lint.document.page import ACCELERATE
from autotune.lint.document.reading import Reading, finding
from autotune.lint.finding import Finding, Severity
from autotune.lint.subject import Launch

_TOP_LEVEL = frozenset(
    [
        "compute_environment",
        "distributed_type",
        "mixed_precision",
        "use_cpu",
        "debug",
        "num_processes",
        "machine_rank",
        "num_machines",
        "gpu_ids",
        "main_process_ip",
        "main_process_port",
        "rdzv_backend",
        "same_network",
        "main_training_function",
        "enable_cpu_affinity",
        "fp8_config",
        "deepspeed_config",
        "fsdp_config",
        "parallelism_config",
        "megatron_lm_config",
        "mpirun_config",
        "downcast_bf16",
        "tpu_name",
        "tpu_zone",
        "tpu_use_cluster",
        "tpu_use_sudo",
        "command_file",
        "commands",
        "tpu_vm",
        "tpu_env",
        "dynamo_config",
        "dynamo_backend",
        "fp16",
    ]
)
"""Fields of `ClusterConfig`, and the old names that `process_config` converts."""
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
_SECTION_KEYS = frozenset(
    (
        *_NOT_BESIDE_A_FILE,
        "zero3_init_flag",
        "deepspeed_config_file",
        "deepspeed_hostfile",
        "deepspeed_exclusion_filter",
        "deepspeed_inclusion_filter",
        "deepspeed_multinode_launcher",
        "deepspeed_moe_layer_cls_names",
    )
)
_PRECISIONS = ("no", "fp16", "bf16", "fp8")


def accelerate_faults(reading: Reading, launch: Launch) -> Iterator[Finding]:
    """Yield what is wrong with an Accelerate config before DeepSpeed sees any of it."""
    value: Mapping[str, Any] = reading.value
    for key, message, suggestion, severity in (
        *_top_level(value),
        *_section(value),
        *_beside_a_file(value),
        *_against_the_launch(value, launch),
    ):
        yield finding(
            ACCELERATE,
            message,
            field=key,
            at=reading.positions.get(key),
            suggestion=suggestion,
            severity=severity,
        )


_Fault = tuple[str, str, str | None, Severity]


def _top_level(value: Mapping[str, Any]) -> Iterator[_Fault]:
    for key in value:
        if key not in _TOP_LEVEL:
            yield (
                key,
                f"{key}: accelerate knows no such key and refuses the file",
                _nearest(key, _TOP_LEVEL) or "drop it",
                Severity.ERROR,
            )
    kind = value.get("distributed_type")
    if kind is None:
        yield (
            "distributed_type",
            "distributed_type is missing: accelerate refuses the file",
            "distributed_type: DEEPSPEED",
            Severity.ERROR,
        )
    elif kind != "DEEPSPEED":
        yield (
            "distributed_type",
            f"distributed_type={kind}: accelerate then passes over {SECTION}",
            "distributed_type: DEEPSPEED",
            Severity.ERROR,
        )
    yield from _precision(value.get("mixed_precision"))


def _precision(precision: Any) -> Iterator[_Fault]:
    if precision is False:
        # The command line's --mixed_precision often saves such files, so it is no error.
        yield (
            "mixed_precision",
            "mixed_precision=no without quotes is false in YAML: `accelerate launch` stops at it "
            "unless --mixed_precision is given",
            "mixed_precision: 'no'",
            Severity.NOTE,
        )
    elif precision is not None and str(precision).lower() not in _PRECISIONS:
        yield (
            "mixed_precision",
            f"mixed_precision={precision}: must be one of {', '.join(_PRECISIONS)}",
            None,
            Severity.ERROR,
        )


def _section(value: Mapping[str, Any]) -> Iterator[_Fault]:
    section = section_of(value)
    for key in section:
        if key not in _SECTION_KEYS:
            yield (
                f"{SECTION}.{key}",
                f"{SECTION}.{key}: accelerate knows no such key and passes over it",
                _nearest(key, _SECTION_KEYS) or "give it in a JSON file: deepspeed_config_file",
                Severity.ERROR,
            )
    stage = section.get("zero_stage")
    if stage is not None and not str(stage).isdigit():
        yield (
            f"{SECTION}.zero_stage",
            f"{SECTION}.zero_stage={stage}: must be one of 0, 1, 2, 3",
            None,
            Severity.ERROR,
        )
    if section.get("zero3_init_flag") is True and stage is not None and str(stage) != "3":
        yield (
            f"{SECTION}.zero3_init_flag",
            f"{SECTION}.zero3_init_flag=true acts at stage 3 only; accelerate switches it off",
            f"drop it, or set {SECTION}.zero_stage to 3",
            Severity.NOTE,
        )
    for name in ("offload_optimizer", "offload_param"):
        if str(section.get(f"{name}_device")).lower() == "nvme":
            yield (
                f"{SECTION}.{name}_nvme_path",
                f"{SECTION}.{name}_nvme_path does not reach DeepSpeed from a YAML: accelerate "
                'hands on the folder "none"',
                "give the path in a JSON file: deepspeed_config_file",
                Severity.WARNING,
            )


def _beside_a_file(value: Mapping[str, Any]) -> Iterator[_Fault]:
    section = section_of(value)
    if "deepspeed_config_file" not in section:
        return
    beside = [f"{SECTION}.{key}" for key in _NOT_BESIDE_A_FILE if key in section]
    if value.get("mixed_precision") is not None:
        beside.append("mixed_precision")
    for key in beside:
        yield (
            key,
            f"{key}: accelerate refuses it beside {FILE_KEY}",
            "drop it here and set it in that file",
            Severity.ERROR,
        )


def _against_the_launch(value: Mapping[str, Any], launch: Launch) -> Iterator[_Fault]:
    for key, planned, option in (
        ("num_processes", launch.gpus, "--gpus"),
        ("num_machines", launch.nodes, "--nodes"),
    ):
        said = value.get(key)
        if planned is not None and isinstance(said, int) and said not in (planned, -1):
            yield (
                key,
                f"{key}={said}, but the planned run has {option} {planned}",
                f"{key}: {planned}",
                Severity.WARNING,
            )


def _nearest(key: str, known: frozenset[str]) -> str | None:
    matches = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
    return f"write {matches[0]}" if matches else None
