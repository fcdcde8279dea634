from typing import Any

import pytest

from autotune.gating.fit.precision import precision_findings
from autotune.job.device import find_device
from tests.gating.judging import subject

BF16: dict[str, Any] = {"bf16": {"enabled": True}}
FP16: dict[str, Any] = {"fp16": {"enabled": True}}


@pytest.mark.parametrize(
    ("ds_config", "device", "expected"),
    [
        (BF16, "v100-32gb", ["warning bf16.enabled"]),
        (BF16, "t4", ["warning bf16.enabled"]),
        (BF16, "a100-80gb", []),
        (BF16, "mi250", []),
        (BF16, "cpu", []),
        ({"bf16": {"enabled": "auto"}}, "t4", []),
        (FP16, "v100-16gb", []),
        (FP16, "p100-16gb", ["error fp16.enabled"]),
        (BF16, None, []),
    ],
)
def test_a_precision_without_hardware_units_is_reported(
    ds_config: dict[str, Any], device: str | None, expected: list[str]
) -> None:
    found = precision_findings(subject(ds_config), None if device is None else find_device(device))
    assert [f"{finding.severity} {finding.field}" for finding in found] == expected


def test_the_message_has_value_device_and_suggestion() -> None:
    [finding] = precision_findings(subject(BF16), find_device("v100-32gb"))
    assert finding.message.startswith("bf16.enabled=true: v100-32gb has no bf16 units")
    assert finding.suggestion is not None
