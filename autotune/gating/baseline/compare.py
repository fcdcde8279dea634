"""`--baseline`: does the record still stand for this config, this job and this environment?"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from autotune.ds_config.fields.table import field_of
from autotune.ds_config.identity import identity
from autotune.gating.baseline.drift import DRIFT, environment_drift
from autotune.gating.request import GateRequest
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule_info import RuleInfo
from autotune.lint.subject import Launch, Subject
from autotune.study.record import Record


def compare_with_record(
    subject: Subject, record: Record, request: GateRequest
) -> Iterator[Finding]:
    """Yield where a config and its launch depart from a record."""
    yield from environment_drift(record, subject.launch, gpu_type=request.job.gpu_type)
    if request.max_age_h is not None:
        yield from stale_record(record, request.max_age_h)
    yield from config_differs(subject, record)
    yield from model_settings_differ(subject.launch, record)


def stale_record(record: Record, max_age_h: float) -> Iterator[Finding]:
    """The record's numbers are older than `--max-age`.

    Its age is counted from `created`, when its last run ended; a record without it is of unknown
    age, which is a warning.

    Measure again with `autotune run`, or allow a greater age.
    """
    if record.created is None:
        yield STALE.finding(
            "created",
            f"{record.path}: does not say when it was measured, so --max-age cannot be checked",
            suggestion="measure again, or write the study's files anew with autotune export",
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
    """The config is not the one that the record's numbers are of.

    Compared are the keys that can act, by any of their names, with DeepSpeed's defaults for what
    is not given; two configs that run alike do not differ.

    Gate the `ds_config.json` beside the record, or measure the new config with `autotune run
    --base`.
    """
    ranks = subject.launch.data_parallel or record.workload.world_size
    ours = _acting(subject.config, ranks)
    theirs = _acting(record.ds_config, record.workload.world_size)
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            yield DIFFERS.finding(
                subject.spelled(key),
                f"{key} is {_told(ours, key)}, and the record was {record.made} with "
                f"{_told(theirs, key)}",
                suggestion="gate the ds_config.json of the record, or measure this config",
                subject=subject,
            )


def model_settings_differ(launch: Launch, record: Record) -> Iterator[Finding]:
    """The model is not set as it was when the record was measured.

    No ds_config key turns activation checkpointing on in the model, or chooses its attention: the
    record's `model_settings` say what the trials did, and the options (or the TrainingArguments)
    what the run will do. What they leave open is not compared.

    Set the model as the record says, or measure it as it will be.
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


STALE = RuleInfo.of(stale_record, "stale-record", Severity.ERROR)
DIFFERS = RuleInfo.of(config_differs, "config-differs", Severity.ERROR)
SETTINGS = RuleInfo.of(model_settings_differ, "model-settings-differ", Severity.ERROR)
RULE_INFOS = (DRIFT, STALE, DIFFERS, SETTINGS)


def _acting(config: Mapping[str, Any], world_size: int) -> Mapping[str, Any]:
    """Return the keys of a config that can act and are not at their defaults."""
    acting: Mapping[str, Any] = json.loads(identity(config, {}, world_size=world_size))["ds_config"]
    return acting


def _told(acting: Mapping[str, Any], key: str) -> str:
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
