"""The ds_config that Accelerate builds from the `deepspeed_config` section of its YAML.

Source: accelerate 1.15, commands/launch.py: `_validate_launch_command`, utils/launch.py:
`prepare_deepspeed_cmd_env` (the YAML becomes environment variables) and utils/dataclasses.py:
`DeepSpeedPlugin` (which become a ds_config).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotune.job.cpu_threads import RankLauncher
from autotune.job.launcher import Launcher
from autotune.lint.document.reading import Reading
from autotune.lint.subject import Launch, Subject

SECTION = "deepspeed_config"
FILE_KEY = f"{SECTION}.deepspeed_config_file"
CPU_THREADS = "num_cpu_threads_per_process"
"""An option of `accelerate launch` that people also write into the file."""

_ZERO = "zero_optimization"
SPELLINGS: Mapping[str, str] = {
    "gradient_accumulation_steps": f"{SECTION}.gradient_accumulation_steps",
    "gradient_clipping": f"{SECTION}.gradient_clipping",
    f"{_ZERO}.stage": f"{SECTION}.zero_stage",
    f"{_ZERO}.offload_optimizer.device": f"{SECTION}.offload_optimizer_device",
    f"{_ZERO}.offload_optimizer.nvme_path": f"{SECTION}.offload_optimizer_nvme_path",
    f"{_ZERO}.offload_optimizer": f"{SECTION}.offload_optimizer_device",
    f"{_ZERO}.offload_param.device": f"{SECTION}.offload_param_device",
    f"{_ZERO}.offload_param.nvme_path": f"{SECTION}.offload_param_nvme_path",
    f"{_ZERO}.offload_param": f"{SECTION}.offload_param_device",
    f"{_ZERO}.stage3_gather_16bit_weights_on_model_save": f"{SECTION}.zero3_save_16bit_model",
    _ZERO: SECTION,
    "fp16.enabled": "mixed_precision",
    "bf16.enabled": "mixed_precision",
    "fp16": "mixed_precision",
    "bf16": "mixed_precision",
}
"""The YAML's names of the ds_config keys."""


def is_accelerate(value: Mapping[str, Any]) -> bool:
    """Whether a mapping is an Accelerate config for DeepSpeed."""
    if isinstance(value.get(SECTION), Mapping):
        return "distributed_type" in value or "compute_environment" in value
    return value.get("distributed_type") == "DEEPSPEED"


def section_of(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the DeepSpeed section of an Accelerate config; empty where it has none."""
    section = value.get(SECTION)
    return section if isinstance(section, Mapping) else {}


def launch_of(value: Mapping[str, Any], launch: Launch) -> Launch:
    """Return the planned run, with the YAML's values for what it does not give."""
    return replace(
        launch,
        launcher=Launcher.HF,
        gpus=launch.gpus or _count(value.get("num_processes")),
        nodes=launch.nodes or _count(value.get("num_machines")),
        started_by=launch.started_by or RankLauncher.ACCELERATE,
        cpu_threads=launch.cpu_threads or _count(value.get(CPU_THREADS)),
    )


def subject_of(reading: Reading, launch: Launch) -> Subject:
    """Return the ds_config that Accelerate builds, with the positions of the YAML."""
    return Subject(
        config=built_ds_config(reading.value),
        launch=launch_of(reading.value, launch),
        positions={
            key: reading.positions[spelled]
            for key, spelled in SPELLINGS.items()
            if spelled in reading.positions
        },
        form="accelerate",
    )


def built_ds_config(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ds_config that Accelerate passes to DeepSpeed.

    Not included: keys that the YAML does not set and Accelerate fills with DeepSpeed's default, and
    `steps_per_print`, which it always sets to infinity.

    Example:
        >>> config = {"deepspeed_config": {"zero_stage": 3}, "mixed_precision": "bf16"}
        >>> built = built_ds_config(config)
        >>> built["zero_optimization"], built["bf16"]
        ({'stage': 3}, {'enabled': True})
    """
    section = section_of(value)
    zero: dict[str, Any] = {"stage": _whole(section.get("zero_stage", 2))}
    for name in ("offload_optimizer", "offload_param"):
        if (device := section.get(f"{name}_device")) is not None:
            zero[name] = _offload(str(device).lower())
    if (saves := section.get("zero3_save_16bit_model")) is not None:
        zero["stage3_gather_16bit_weights_on_model_save"] = str(saves).lower() == "true"
    config: dict[str, Any] = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": _whole(section.get("gradient_accumulation_steps", "auto")),
        _ZERO: zero,
    }
    if clipping := section.get("gradient_clipping", "auto"):
        config["gradient_clipping"] = clipping
    return config | _precision(value.get("mixed_precision"))


def _offload(device: str) -> dict[str, Any]:
    # `prepare_deepspeed_cmd_env` does not pass the path on, and the plugin's default is this
    # string.
    return {"device": device, "nvme_path": "none"} if device == "nvme" else {"device": device}


def _precision(mixed_precision: Any) -> dict[str, Any]:
    """Return what `DeepSpeedPlugin.set_mixed_precision` adds."""
    name = str(mixed_precision).lower()
    fp16: dict[str, Any] = {"enabled": False}
    if name == "fp16":
        fp16 = {"enabled": True, "auto_cast": True}
    return {"fp16": fp16, "bf16": {"enabled": name in ("bf16", "fp8")}}


def _whole(value: Any) -> Any:
    """Return a value as it comes back from an environment variable."""
    text = str(value)
    return int(text) if text.isdigit() else value


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and value > 0 else None
