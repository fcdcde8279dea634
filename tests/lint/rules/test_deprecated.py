"""Deprecated keys become what replaces them; removed keys are errors."""

from typing import Any

import pytest

from autotune.ds_config.fields.table import known_fields
from autotune.lint.finding import Finding, RefusedBy, Severity
from autotune.lint.rules import deprecated
from autotune.lint.subject import Subject

ZERO = "zero_optimization"
FP16_WEIGHTS = "stage3_gather_fp16_weights_on_model_save"
WEIGHTS = "stage3_gather_16bit_weights_on_model_save"


def reported(config: dict[str, Any]) -> list[Finding]:
    subject = Subject(config=config)
    return [finding for rule in deprecated.RULES for finding in rule.findings(subject)]


def only(config: dict[str, Any]) -> Finding:
    [finding] = reported(config)
    return finding


@pytest.mark.parametrize(
    ("config", "fixed"),
    [
        (
            {ZERO: {"stage": 2, "cpu_offload": True}},
            {ZERO: {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
        ),
        (
            {ZERO: {"stage": 3, "cpu_offload_param": "true"}},
            {ZERO: {"stage": 3, "offload_param": {"device": "cpu"}}},
        ),
        ({ZERO: {FP16_WEIGHTS: True}}, {ZERO: {WEIGHTS: True}}),
        ({"bfloat16": {"enabled": True}}, {"bf16": {"enabled": True}}),
        ({ZERO: True}, {ZERO: {"stage": 1}}),
        (
            {ZERO: True, "allgather_size": 5e8},
            {ZERO: {"stage": 1, "allgather_bucket_size": 5e8}},
        ),
        ({ZERO: False}, {ZERO: {"stage": 0}}),
        (
            {ZERO: {"stage": 1, "cpu_offload_use_pin_memory": True}},
            {ZERO: {"stage": 1}},
        ),
    ],
)
def test_a_deprecated_key_is_a_warning_with_a_fix(
    config: dict[str, Any], fixed: dict[str, Any]
) -> None:
    finding = only(config)
    assert finding.severity is Severity.WARNING
    assert finding.fix is not None
    assert finding.fix.applied(config) == fixed
    assert reported(fixed) == []


@pytest.mark.parametrize("value", [False, None, "false"])
def test_a_deprecated_switch_that_is_off_is_a_note(value: object) -> None:
    finding = only({ZERO: {"stage": 2, "cpu_offload": value}})
    assert finding.severity is Severity.NOTE
    assert finding.fix is not None
    assert finding.fix.applied({ZERO: {"stage": 2, "cpu_offload": value}}) == {ZERO: {"stage": 2}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cpu_offload", {"offload_optimizer": {"device": "cpu"}}),
        ("cpu_offload_param", {"offload_param": {"device": "none"}}),
        (FP16_WEIGHTS, {WEIGHTS: True}),
        (FP16_WEIGHTS, {"gather_16bit_weights_on_model_save": True}),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_old_and_new_together_are_refused(old: str, new: dict[str, Any], value: bool) -> None:
    finding = only({ZERO: {old: value, **new}})
    assert (finding.rule, finding.field) == ("deprecated-beside-new", f"{ZERO}.{old}")
    assert (finding.severity, finding.refused_by) == (Severity.ERROR, RefusedBy.PARSE)
    # Only where one is off is it clear which of the two is intended.
    assert (finding.fix is None) == value


def test_an_auto_beside_an_old_key_is_dropped_in_time() -> None:
    finding = only({ZERO: {FP16_WEIGHTS: True, WEIGHTS: "auto"}})
    assert finding.rule == "deprecated"


def test_the_old_bf16_section_is_ignored_beside_the_new_one() -> None:
    finding = only({"bf16": {"enabled": True}, "bfloat16": {"enabled": False}})
    assert (finding.field, finding.severity) == ("bfloat16", Severity.WARNING)
    assert "takes the bf16 section instead" in finding.message


REMOVED = [field.key for field in known_fields().values() if field.removed]


@pytest.mark.parametrize("key", REMOVED)
@pytest.mark.parametrize("value", [None, False, {"enabled": False}, {"enabled": True}])
def test_a_removed_key_is_refused_on_or_off(key: str, value: object) -> None:
    section, _, leaf = key.rpartition(".")
    finding = only({section: {leaf: value}} if section else {leaf: value})
    assert (finding.rule, finding.field, finding.refused_by) == ("removed", key, RefusedBy.PARSE)
    assert "http" not in finding.message
    # Only what is off can be left out without asking.
    assert (finding.fix is None) == (value == {"enabled": True})


def test_there_are_removed_keys() -> None:
    assert {"amp", "nebula", "sparse_attention", f"{ZERO}.mics_shard_size"} <= set(REMOVED)
