"""Is this the environment and the job that the record was measured with?"""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from autotune.errors import HardwareError
from autotune.job.device import find_device
from autotune.job.model_shape import ModelShape
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule_info import RuleInfo
from autotune.lint.subject import Launch
from autotune.study.environment import THREADS_PER_RANK
from autotune.study.record import Record

_PACKAGES = ("torch", "deepspeed", "transformers")
"""Whose versions move speed and memory."""
_SIZE_TOLERANCE = 0.01
"""Within this a number of parameters is the recorded model's: people round it."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """One thing as it was recorded and as it is now."""

    field: str
    """In the record."""
    name: str
    recorded: Any
    now: Any


def environment_drift(
    record: Record, launch: Launch, *, gpu_type: str | None = None
) -> Iterator[Finding]:
    """The record was measured with other versions or devices, or of another job.

    Its tokens/s and memory are those of its own versions of torch, DeepSpeed and transformers
    (compared with what is installed here), of its GPU (with `--gpu-type`, else this machine's) and
    driver (this machine's, if its GPU is the recorded one), and of its model, world size, sequence
    length and, with an offloaded optimizer, CPU threads of a rank (with the options). What the
    options leave out and this machine lacks is not compared.

    Measure again where the difference matters: `autotune run`, or `autotune gate --measure`.
    """
    pairs = [*_versions(record), *_devices(record, gpu_type), *_job(record, launch)]
    for pair in pairs:
        if pair.recorded != pair.now:
            yield DRIFT.finding(
                pair.field,
                f"{pair.name} is {pair.now}, and the record was {record.made} with {pair.recorded}",
                suggestion="measure again if the numbers of the record matter here",
            )


DRIFT = RuleInfo.of(environment_drift, "environment-drift", Severity.WARNING)


def _versions(record: Record) -> Iterator[_Pair]:
    for package in _PACKAGES:
        recorded = record.environment.get(package)
        if recorded is None:
            continue
        try:
            here = version(package)
        except PackageNotFoundError:
            continue  # a CI machine need not have it
        yield _Pair(f"environment.{package}", package, recorded, here)


def _devices(record: Record, gpu_type: str | None) -> Iterator[_Pair]:
    recorded = record.device_model
    if recorded is None:
        return
    if gpu_type is not None:
        yield _Pair("environment.device_model", "the GPU", _known(recorded), _known(gpu_type))
        return
    # A CI machine need not have what a pool needs. NVML is asked here only: it takes longer than
    # everything else of a comparison.
    if any(importlib.util.find_spec(package) is None for package in ("psutil", "pynvml")):
        return
    from autotune.pool.machine import cuda_device_names, cuda_driver_version

    here = set(cuda_device_names())
    if not here or recorded == "cpu":
        return
    if recorded not in here:
        yield _Pair("environment.device_model", "this machine's GPU", recorded, min(here))
    elif (driver := record.environment.get("driver")) is not None:
        yield _Pair("environment.driver", "the driver", driver, cuda_driver_version())


def _known(device: str) -> str:
    """Return the catalogue's name of a device, or its own where the catalogue lacks it."""
    try:
        return find_device(device).name
    except HardwareError:
        return device


def _job(record: Record, launch: Launch) -> Iterator[_Pair]:
    workload = record.workload
    recorded = record.environment.get(THREADS_PER_RANK)
    zero = record.ds_config.get("zero_optimization") or {}
    offloads = (zero.get("offload_optimizer") or {}).get("device", "none") != "none"
    # Without an optimizer on the CPU they decide little.
    if offloads and recorded is not None and launch.cpu_threads is not None:
        yield _Pair(
            f"environment.{THREADS_PER_RANK}",
            "the number of CPU threads a rank",
            recorded,
            launch.cpu_threads,
        )
    if launch.data_parallel is not None:
        yield _Pair(
            "workload.world_size",
            "the number of data-parallel ranks",
            workload.world_size,
            launch.data_parallel,
        )
    if launch.seq_len is not None:
        yield _Pair("workload.seq_len", "the sequence length", workload.seq_len, launch.seq_len)
    if launch.model is not None:
        recorded, now = _dimensions(workload.model), _dimensions(launch.model)
        changed = [name for name in now if now[name] != recorded[name]]
        if changed:
            yield _Pair(
                "workload.model",
                "the model",
                _told(workload.model.name, recorded, changed),
                _told(launch.model.name, now, changed),
            )
    elif launch.num_parameters is not None:
        size = workload.model.num_parameters
        if abs(launch.num_parameters - size) > _SIZE_TOLERANCE * size:
            yield _Pair(
                "workload.model",
                "the number of parameters",
                f"{size:,}",
                f"{launch.num_parameters:,}",
            )


def _dimensions(shape: ModelShape) -> dict[str, Any]:
    """Return what makes a model this one; what the user called it does not."""
    left_out = ("name", "hf_config")
    return {name: value for name, value in shape.to_json().items() if name not in left_out}


def _told(name: str, dimensions: Mapping[str, Any], changed: Sequence[str]) -> str:
    return f"{name} ({', '.join(f'{each} {dimensions[each]}' for each in changed)})"
