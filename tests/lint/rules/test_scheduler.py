"""Which schedules DeepSpeed takes."""

from typing import Any

import pytest

from autotune.lint.rules.scheduler import RULES
from tests.lint.rules.asking import findings, reported, zero


def _type(name: Any) -> dict[str, Any]:
    return {"scheduler.type": name}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (_type("WarmupCosine"), ["error unknown-scheduler scheduler.type"]),
        (_type("cosine"), ["error unknown-scheduler scheduler.type"]),
        (_type("warmuplr"), ["error unknown-scheduler scheduler.type"]),
        (_type("StepLR") | zero(1), ["error torch-scheduler scheduler.type"]),
        (_type("StepLR") | {"fp16.enabled": True}, ["error torch-scheduler scheduler.type"]),
        ({"scheduler.params.warmup_num_steps": 5}, ["error scheduler-without-type scheduler"]),
    ],
)
def test_a_fault_is_found(keys: dict[str, Any], expected: list[str]) -> None:
    assert reported(RULES, keys) == expected


@pytest.mark.parametrize(
    "keys",
    [
        {},
        _type("WarmupLR") | zero(3),
        _type("OneCycle"),
        _type("StepLR"),
        _type("StepLR") | {"bf16.enabled": "auto"},
        _type("auto"),
        _type(7),
        {"scheduler": {}},
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any]) -> None:
    assert reported(RULES, keys) == []


def test_the_nearest_schedule_is_named_and_only_its_case_fixed() -> None:
    [typo], [wrong_case] = findings(RULES, _type("WarmupCosine")), findings(RULES, _type("steplr"))
    assert typo.suggestion == 'did you mean "WarmupCosineLR"?'
    assert typo.fix is None
    assert wrong_case.fix is not None
    assert wrong_case.fix.put == {"scheduler.type": "StepLR"}
