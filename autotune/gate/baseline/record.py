"""`record.json`, read back: the numbers that a ds_config was chosen by."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from autotune import dotted
from autotune.errors import ConfigError, GateError, HardwareError
from autotune.gate.inputs import read_json_mapping
from autotune.job.base import read_base
from autotune.job.batch import MICRO_BATCH
from autotune.job.device import find_gpu
from autotune.job.job import Job
from autotune.job.origin import Origin
from autotune.job.resolve import RecordedJob
from autotune.job.trainer import positive
from autotune.study.record import Record

_CONFIG = "ds_config.json"
_NEEDED = ("evaluator", "tokens_per_s.value", "workload", "environment", "model_settings")


def read_record(path: Path) -> Record:
    """Read a record and the ds_config that it stands for.

    Raises:
        GateError: it cannot be read, or lacks what a comparison needs; every fault is named.
    """
    content = read_json_mapping(path, option="--baseline", what="a record of autotune")
    missing = [key for key in _NEEDED if dotted.get(content, key) is None]
    if missing:
        raise GateError(
            f"--baseline {path}: {', '.join(missing)} missing; give the record.json of a study"
        )
    ds_config = content.get("ds_config") or _config_beside(path)
    try:
        return Record.from_json({**content, "ds_config": ds_config}, path=path)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise GateError(
            f"--baseline {path}: not a record of autotune: {type(error).__name__}: {error}"
        ) from error


def _config_beside(path: Path) -> Mapping[str, Any]:
    """Return the ds_config beside a record: older versions did not write it into the record."""
    try:
        return read_base(path.parent / _CONFIG).config
    except ConfigError as error:
        raise GateError(
            f"--baseline {path}: holds no ds_config, and there is none beside it: {error}"
        ) from error


_KEPT = (
    "gpu_type",
    "gpu_memory",
    "memory_ceiling",
    "host_memory",
    "nodes",
    "gpus_per_node",
    "link",
)
"""Facts about the site that only a record's job states."""
_STATED = (Origin.OPTION, Origin.JOB_FILE, Origin.DS_CONFIG, Origin.HF_ARGS)
_NAMES = frozenset(field.name for field in fields(Job))


def recorded_job(record: Record) -> RecordedJob:
    """Return the job of a record, for facts that no other source states."""
    workload, settings = record.workload, record.model_settings
    checkpointing = settings.get("activation_checkpointing")
    attention = settings.get("attn_implementation")
    return RecordedJob(
        job=Job(
            **_site(record),
            gpus=workload.world_size,
            seq_len=workload.seq_len,
            precision=workload.precision,
            activation_checkpointing=checkpointing if isinstance(checkpointing, bool) else None,
            attn_implementation=attention if isinstance(attention, str) else None,
            cpu_threads=positive(record.environment.get("threads_per_rank")),
        ),
        shape=workload.model,
        micro_batch_size=positive(record.ds_config.get(MICRO_BATCH)),
    )


def _site(record: Record) -> dict[str, Any]:
    """Return where the job runs: what was stated, and the devices that really ran it.

    CPU ranks say nothing about the site of the big run.
    """
    if record.device_model == "cpu":
        return {}
    stated = {name: value for name, value in _stated(record).items() if name in _KEPT}
    ran_on = _gpu_type(record)
    return stated if ran_on is None else {**stated, "gpu_type": ran_on}


def _stated(record: Record) -> dict[str, Any]:
    """Return what the options of the run, its job file or its base stated."""
    return {
        name: fact["value"]
        for name, fact in (record.job or {}).items()
        if name in _NAMES and fact["value"] is not None and fact["origin"] in _STATED
    }


def _gpu_type(record: Record) -> str | None:
    """Return the catalogue's name of the devices; None of CPU ranks and unknown devices."""
    try:
        return None if record.device_model is None else find_gpu(record.device_model).name
    except HardwareError:
        return None
