"""Names, step counts and rates in scheduler.params."""

from typing import Any

import pytest

from autotune.lint.rules.scheduler_params import RULES
from tests.lint.rules.asking import findings, reported

P = "scheduler.params"


ADAMW = {"optimizer.type": "AdamW", "optimizer.params.lr": 1e-4}


def _of(name: str, **params: Any) -> dict[str, Any]:
    return {"scheduler": {"type": name, "params": params}}


def _decay(**params: Any) -> dict[str, Any]:
    return _of("WarmupDecayLR", **({"total_num_steps": 100, "warmup_num_steps": 10} | params))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"scheduler.type": "WarmupLR"}, [f"error scheduler-params {P}"]),
        (
            {"scheduler": {"type": "OneCycle", "params": None}},
            [f"error scheduler-params {P}"],
        ),
        (
            _of("OneCycle", cycle_min_lr=1e-5),
            [f"error scheduler-params {P}.cycle_max_lr"],
        ),
        (_of("WarmupLR", total_num_steps=9), [f"error scheduler-params {P}.total_num_steps"]),
        (
            _of("WarmupCosineLR", total_num_steps=9, warmup_num_steps=1, warmup_max_lr=1e-4),
            [f"error scheduler-params {P}.warmup_max_lr"],
        ),
        (_decay(warmup_num_steps=0), [f"error scheduler-steps {P}.warmup_num_steps"]),
        (_decay(warmup_num_steps=10.0), [f"error scheduler-steps {P}.warmup_num_steps"]),
        (_decay(total_num_steps=0), [f"error scheduler-steps {P}.total_num_steps"]),
        (_decay(total_num_steps=None), [f"error scheduler-steps {P}.total_num_steps"]),
        (_decay(total_num_steps="100"), [f"error scheduler-steps {P}.total_num_steps"]),
        (_decay(total_num_steps=0, warmup_num_steps=0), [f"error scheduler-steps {P}"]),
        (
            _of("LRRangeTest", lr_range_test_step_size=0),
            [f"error scheduler-steps {P}.lr_range_test_step_size"],
        ),
        (
            _of("OneCycle", cycle_min_lr=0, cycle_max_lr=1, cycle_second_step_size=-1),
            [f"error scheduler-steps {P}.cycle_second_step_size"],
        ),
        (_decay(warmup_max_lr="1e-4"), [f"error scheduler-rate {P}.warmup_max_lr"]),
        (_decay(warmup_max_lr=-1e-4), [f"error scheduler-rate {P}.warmup_max_lr"]),
        (_decay(warmup_max_lr=True), [f"error scheduler-rate {P}.warmup_max_lr"]),
        (_decay(warmup_type="cosine"), [f"warning warmup-type {P}.warmup_type"]),
        (_decay(total_num_steps=10), [f"warning scheduler-order {P}.total_num_steps"]),
        (
            _decay(warmup_min_lr=1e-3, warmup_max_lr=1e-4),
            [f"warning scheduler-order {P}.warmup_min_lr"],
        ),
        (ADAMW | _decay(), [f"warning scheduler-peak-rate {P}.warmup_max_lr"]),
        (
            ADAMW | _of("WarmupLR", warmup_max_lr=3e-4),
            [f"warning scheduler-peak-rate {P}.warmup_max_lr"],
        ),
        (
            _of("OneCycle", cycle_min_lr=0, cycle_max_lr=1, decay_lr_rate=0.1),
            [f"warning one-cycle-decay {P}.decay_lr_rate"],
        ),
    ],
)
def test_a_fault_is_found(keys: dict[str, Any], expected: list[str]) -> None:
    assert reported(RULES, keys) == expected


@pytest.mark.parametrize(
    "keys",
    [
        {},
        _of("WarmupLR"),
        _of("WarmupLR", warmup_num_steps="auto", warmup_max_lr="auto", warmup_min_lr="auto"),
        _of("WarmupLR", last_batch_iteration=-1, warmup_type="linear"),
        _of("WarmupLR", warmup_max_lr=[1e-4, 1e-5], warmup_min_lr=None),
        _decay(),
        _decay(total_num_steps=100.0),
        _decay(total_num_steps="auto", warmup_num_steps="auto"),
        _of("WarmupCosineLR", total_num_steps=9, warmup_num_steps=1, cos_min_ratio=0.1),
        ADAMW | _of("WarmupLR"),
        ADAMW | _decay(warmup_max_lr=1e-4),
        ADAMW | _decay(warmup_max_lr="auto"),
        ADAMW | _decay() | {"optimizer.params.lr": "auto"},
        _of("OneCycle", cycle_min_lr=1e-5, cycle_max_lr=1e-4, cycle_first_step_size=0.5),
        _of("OneCycle", cycle_min_lr=0, cycle_max_lr=1, decay_lr_rate=0.1, decay_step_size=5),
        _of("LRRangeTest", lr_range_test_step_size=5, lr_range_test_step_rate=5),
        _of("StepLR", step_size=3),
        _of("Unknown", total_num_steps=0),
        {"scheduler": {"type": "WarmupLR", "params": {"_comment": "x"}}},
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any]) -> None:
    assert reported(RULES, keys) == []


@pytest.mark.parametrize(
    ("keys", "put"),
    [
        (_decay(warmup_num_steps=10.0), {f"{P}.warmup_num_steps": 10}),
        (_decay(total_num_steps="1e3"), {f"{P}.total_num_steps": 1000}),
        (_decay(warmup_max_lr="1e-4"), {f"{P}.warmup_max_lr": 1e-4}),
        (_decay(warmup_type="Linear"), {f"{P}.warmup_type": "linear"}),
    ],
)
def test_the_intended_value_is_written(keys: dict[str, Any], put: dict[str, Any]) -> None:
    [found] = findings(RULES, keys)
    assert found.fix is not None
    assert found.fix.put == put


def test_a_count_of_zero_is_left_to_the_user() -> None:
    [found] = findings(RULES, _decay(warmup_num_steps=0))
    assert found.fix is None
    assert found.suggestion == "write 1 for no warm-up"
