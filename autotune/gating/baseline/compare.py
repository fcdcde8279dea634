"""`--baseline`: does the record still describe this config, this job and this environment?"""

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from autotune.ds_config.fields.table import field_of
from autotune.ds_config.identity import identity
from autotune.errors import HardwareError
from autotune.gating.request import GateRequest
from autotune.job.device import find_device
from autotune.job.model_shape import ModelShape
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule_info import RuleInfo
from autotune.lint.subject import Launch, Subject
from autotune.study.environment import THREADS_PER_RANK
from autotune.study.record import Record

_PACKAGES = ("torch", "deepspeed", "transformers")
"""Packages whose versions change speed and memory."""
_SIZE_TOLERANCE = 0.01
"""Relative difference up to which two numbers of parameters are equal: users round them."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A fact as recorded and as it is now."""

    field: str
    """Dotted path in the record."""
    name: str
    recorded: Any
    now: Any


def compare_with_record(
    subject: Subject, record: Record, request: GateRequest
) -> Iterator[Finding]:
    """Yield differences between a record and the config, its launch and this environment."""
    yield from environment_drift(record, subject.launch, gpu_type=request.job.gpu_type)
    if request.max_age_h is not None:
        yield from stale_record(record, request.max_age_h)
    yield from config_differs(subject, record)
    yield from model_settings_differ(subject.launch, record)


def environment_drift(
    record: Record, launch: Launch, *, gpu_type: str | None = None
) -> Iterator[Finding]:
    """The record was measured with other versions, other devices or another job.

    Its tokens/s and memory hold for the recorded versions of torch, DeepSpeed and transformers
    (compared with those installed here), the recorded GPU (compared with `--gpu-type`, else with
    this machine's) and driver (if this machine has the recorded GPU), and for the recorded model,
    world size, sequence length and, with an offloaded optimizer, CPU threads a rank (compared with
    the options). A fact that neither the options nor this machine give is not compared.

    Suggestion: if the difference matters, measure again with `autotune run` or `autotune gate
    --measure`.
    """
    pairs = [*_versions(record), *_devices(record, gpu_type), *_job(record, launch)]
    for pair in pairs:
        if pair.recorded != pair.now:
            yield DRIFT.finding(
                pair.field,
                f"{pair.name} is {pair.now}, and the record was {record.made} with {pair.recorded}",
                suggestion="measure again if the difference matters",
            )


def stale_record(record: Record, max_age_h: float) -> Iterator[Finding]:
    """The record's numbers are older than `--max-age`.

    The age is counted from `created`, the end of the last run. A record without `created` has an
    unknown age, which is a warning.

    Suggestion: measure again with `autotune run`, or allow a greater age.
    """
    if record.created is None:
        yield STALE.finding(
            "created",
            f"{record.path}: `created` is missing, so --max-age cannot be checked",
            suggestion="measure again, or rewrite the study's files with autotune export",
            severity=Severity.WARNING,
        )
        return
    age_h = (datetime.now(UTC) - record.created).total_seconds() / 3600
    if age_h > max_age_h:
        yield STALE.finding(
            "created",
            f"created={record.created.isoformat()}: the record is {_days(age_h)} old, more than "
            f"the {_days(max_age_h)} that --max-age allows",
            suggestion="measure again with autotune run, or allow a greater --max-age",
        )


def config_differs(subject: Subject, record: Record) -> Iterator[Finding]:
    """The record's numbers are of another config.

    The keys that can act are compared, by any of their names, with DeepSpeed's defaults for keys
    that are not given. Two configs that run alike do not differ.

    Suggestion: gate the `ds_config.json` beside the record, or measure the new config with
    `autotune run --base`.
    """
    ranks = subject.launch.data_parallel or record.workload.world_size
    ours = _acting(subject.config, ranks)
    theirs = _acting(record.ds_config, record.workload.world_size)
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            yield DIFFERS.finding(
                subject.spelled(key),
                f"{key} is {_value_text(ours, key)}, and the record was {record.made} with "
                f"{_value_text(theirs, key)}",
                suggestion="gate the ds_config.json of the record, or measure this config",
                subject=subject,
            )


def model_settings_differ(launch: Launch, record: Record) -> Iterator[Finding]:
    """The model settings differ from those of the record.

    No ds_config key turns activation checkpointing on in the model. The record's `model_settings`
    hold the setting of the trials; the options or the TrainingArguments give that of the run. A
    setting that is not given is not compared.

    Suggestion: set the model as in the record, or measure it as it will run.
    """
    setting = "activation_checkpointing"
    planned, recorded = launch.activation_checkpointing, record.model_settings.get(setting)
    if planned is not None and recorded is not None and planned != recorded:
        yield SETTINGS.finding(
            f"model.{setting}",
            f"activation checkpointing is {_switch(planned)}, and the record was {record.made} "
            f"with it {_switch(bool(recorded))}",
            suggestion=f"switch it {_switch(bool(recorded))} in the model, or measure again",
        )


DRIFT = RuleInfo.of(environment_drift, "environment-drift", Severity.WARNING)
STALE = RuleInfo.of(stale_record, "stale-record", Severity.ERROR)
DIFFERS = RuleInfo.of(config_differs, "config-differs", Severity.ERROR)
SETTINGS = RuleInfo.of(model_settings_differ, "model-settings-differ", Severity.ERROR)
RULE_INFOS = (DRIFT, STALE, DIFFERS, SETTINGS)


def _acting(config: Mapping[str, Any], world_size: int) -> Mapping[str, Any]:
    """Return the keys that can act and differ from their defaults."""
    acting: Mapping[str, Any] = json.loads(identity(config, {}, world_size=world_size))["ds_config"]
    return acting


def _value_text(acting: Mapping[str, Any], key: str) -> str:
    if key in acting:
        return json.dumps(acting[key])
    field = field_of(key)
    if field is None or field.default is None:
        return "not given"
    return f"DeepSpeed's default {json.dumps(field.default)}"


def _switch(on: bool) -> str:  # noqa: FBT001  a value, not an option
    return "on" if on else "off"


def _days(hours: float) -> str:
    return f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} hours"


def _versions(record: Record) -> Iterator[_Pair]:
    for package in _PACKAGES:
        recorded = record.environment.get(package)
        if recorded is None:
            continue
        try:
            here = version(package)
        except PackageNotFoundError:
            continue  # a CI machine may lack it
        yield _Pair(f"environment.{package}", package, recorded, here)


def _devices(record: Record, gpu_type: str | None) -> Iterator[_Pair]:
    recorded = record.device_model
    if recorded is None:
        return
    if gpu_type is not None:
        yield _Pair("environment.device_model", "the GPU", _known(recorded), _known(gpu_type))
        return
    # A CI machine may lack the pool's packages. NVML is queried only here: it takes longer than the
    # rest of the comparison.
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
    """Return the catalogue's name of a device, or the given name if the catalogue lacks it."""
    try:
        return find_device(device).name
    except HardwareError:
        return device


def _job(record: Record, launch: Launch) -> Iterator[_Pair]:
    workload = record.workload
    recorded = record.environment.get(THREADS_PER_RANK)
    zero = record.ds_config.get("zero_optimization") or {}
    offloads = (zero.get("offload_optimizer") or {}).get("device", "none") != "none"
    # Threads matter little unless the optimizer runs on the CPU.
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
                _model_text(workload.model.name, recorded, changed),
                _model_text(launch.model.name, now, changed),
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
    """Return what identifies a model; its name does not."""
    left_out = ("name", "hf_config")
    return {name: value for name, value in shape.to_json().items() if name not in left_out}


def _model_text(name: str, dimensions: Mapping[str, Any], changed: Sequence[str]) -> str:
    return f"{name} ({', '.join(f'{each} {dimensions[each]}' for each in changed)})"
