"""Settings that the engine reads itself."""

from typing import Any

import pytest

from autotune.lint.rules.engine import RULES
from tests.lint.rules.asking import findings, reported


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"steps_per_print": 0}, ["error steps-per-print steps_per_print"]),
        ({"log_level": "verbose"}, ["error log-level log_level"]),
        ({"autotuning.enabled": True}, ["note autotuning-run autotuning.enabled"]),
        (
            {"activation_checkpointing.partition_activations": True},
            ["note activation-checkpointing-section activation_checkpointing"],
        ),
        ({"vocabulary_size": 50_257}, ["note vocabulary-alignment vocabulary_size"]),
    ],
)
def test_a_fault_is_found(keys: dict[str, Any], expected: list[str]) -> None:
    assert reported(RULES, keys) == expected


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"steps_per_print": None, "log_level": None},
        {"steps_per_print": 1e9, "log_level": "WARNING"},
        {"autotuning.enabled": False},
        {"activation_checkpointing": {}},
        {"vocabulary_size": 50_304},
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any]) -> None:
    assert reported(RULES, keys) == []


def test_a_profile_run_is_reported_to_end_at_once() -> None:
    keys = {"autotuning.enabled": True, "autotuning.model_info.profile": True}
    [found] = findings(RULES, keys)
    assert found.message.endswith("ends the program in its first forward pass")
