"""Reads `record.json`: the numbers that a ds_config was chosen by, and its job."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from autotune import dotted
from autotune.errors import ConfigError, GateError, HardwareError
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
    """Read a record and its ds_config.

    Raises:
        GateError: it cannot be read, or a key that the comparison needs is missing; every missing
            key is named.
    """
    content = _json_mapping(path)
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


def _json_mapping(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise GateError(f"--baseline {path}: no such file") from error
    except OSError as error:
        raise GateError(f"--baseline {path}: not readable: {error.strerror}") from error
    except ValueError as error:  # bad JSON or bad UTF-8
        raise GateError(f"--baseline {path}: not readable as JSON: {error}") from error
    if not isinstance(content, dict):
        raise GateError(
            f"--baseline {path}: holds a {type(content).__name__}, not a record of autotune"
        )
    return content


def _config_beside(path: Path) -> Mapping[str, Any]:
    """Return the ds_config beside a record, for records written by an older version."""
    try:
        return read_base(path.parent / _CONFIG).config
    except ConfigError as error:
        raise GateError(
            f"--baseline {path}: has no ds_config, and no ds_config.json is beside it: {error}"
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
"""Facts about the site that are in a record only as facts of its job."""
_GIVEN_BY = (Origin.OPTION, Origin.JOB_FILE, Origin.DS_CONFIG, Origin.HF_ARGS)
_NAMES = frozenset(field.name for field in fields(Job))


def recorded_job(record: Record) -> RecordedJob:
    """Return the job of a record, for facts that no other source gives."""
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
    """Return the site: the facts that were given, and the devices that ran the job.

    A record of CPU ranks has no facts about the site of the big run.
    """
    if record.device_model == "cpu":
        return {}
    given = {name: value for name, value in _given(record).items() if name in _KEPT}
    ran_on = _gpu_type(record)
    return given if ran_on is None else {**given, "gpu_type": ran_on}


def _given(record: Record) -> dict[str, Any]:
    """Return the facts that the run's options, job file or base gave."""
    return {
        name: fact["value"]
        for name, fact in (record.job or {}).items()
        if name in _NAMES and fact["value"] is not None and fact["origin"] in _GIVEN_BY
    }


def _gpu_type(record: Record) -> str | None:
    """Return the catalogue's name of the devices; None for CPU ranks and unknown devices."""
    try:
        return None if record.device_model is None else find_gpu(record.device_model).name
    except HardwareError:
        return None
