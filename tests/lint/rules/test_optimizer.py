"""Which optimizers DeepSpeed and ZeRO take."""

from typing import Any

import pytest

from autotune.job.launcher import Launcher
from autotune.lint.rules.optimizer import RULES
from tests.lint.rules.asking import findings, reported, zero

UNTESTED = "zero_allow_untested_optimizer"


def _type(name: Any) -> dict[str, Any]:
    return {"optimizer.type": name}


@pytest.mark.parametrize(
    ("keys", "launch", "expected"),
    [
        (_type("OneBitAdam"), {}, ["error unknown-optimizer optimizer.type"]),
        (_type("sgd"), {}, ["error unknown-optimizer optimizer.type"]),
        (_type("my.package.Adam"), {}, ["error unknown-optimizer optimizer.type"]),
        ({"optimizer.params.lr": 1e-3}, {}, ["error optimizer-without-type optimizer"]),
        (
            _type("AdamW"),
            {"client_optimizer": "torch.optim.AdamW"},
            ["warning two-optimizers optimizer.type"],
        ),
        (zero(1) | _type("SGD"), {}, [f"error untested-optimizer {UNTESTED}"]),
        (zero(3) | _type("lamb"), {}, [f"error untested-optimizer {UNTESTED}"]),
        (zero(2), {"client_optimizer": "Adafactor"}, [f"error untested-optimizer {UNTESTED}"]),
        (
            zero(2) | {UNTESTED: False},
            {"client_optimizer": "bitsandbytes.optim.AdamW"},
            [f"error untested-optimizer {UNTESTED}"],
        ),
        (_type("LBFGS"), {}, ["error impossible-optimizer optimizer.type"]),
        (_type("SparseAdam"), {}, ["error impossible-optimizer optimizer.type"]),
        (
            _type("Lamb") | {"fp16.loss_scale": 128},
            {},
            ["error lamb-loss-scale fp16.loss_scale"],
        ),
        (zero(3) | _type("Muon"), {}, ["error muon zero_optimization.reduce_scatter"]),
        (
            zero(3, reduce_scatter=False, zero_quantized_gradients=True) | _type("muon"),
            {},
            ["error muon zero_optimization.zero_quantized_gradients"],
        ),
        (
            _type("Muon") | {"optimizer.params.ns_method": "newton"},
            {},
            ["error muon optimizer.params.ns_method"],
        ),
        (_type("MuAdam"), {}, ["note missing-mup optimizer.type"]),
    ],
)
def test_a_fault_is_found(
    keys: dict[str, Any], launch: dict[str, Any], expected: list[str]
) -> None:
    assert reported(RULES, keys, **launch) == expected


@pytest.mark.parametrize(
    ("keys", "launch"),
    [
        ({}, {}),
        (_type("ADAMW"), {}),
        (zero(3) | _type("Adam"), {}),
        (_type("SGD"), {}),
        (zero(2) | _type("SGD") | {UNTESTED: True}, {}),
        (zero(2) | _type("Lion"), {}),
        (zero(2), {"client_optimizer": "deepspeed.ops.adam.FusedAdam"}),
        (zero(2), {"client_optimizer": "AdamW"}),
        (zero(2), {"client_optimizer": "Adafactor", "launcher": Launcher.HF}),
        ({"zero_optimization.stage": "auto"} | _type("SGD"), {}),
        (_type("Lamb") | {"fp16.loss_scale": 0}, {}),
        (zero(3, reduce_scatter=False) | _type("Muon"), {}),
        (zero(2) | _type("Muon"), {}),
        (_type("auto"), {}),
        (_type(3), {}),
        ({"optimizer": {}}, {}),
        ({"optimizer": "AdamW"}, {}),
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any], launch: dict[str, Any]) -> None:
    assert reported(RULES, keys, **launch) == []


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("OneBitLamb", 'use "Lamb"'),
        ("AdmaW", 'did you mean "AdamW"?'),
        ("rmsprop", 'did you mean "RMSprop"?'),
    ],
)
def test_the_nearest_optimizer_is_named(name: str, suggestion: str) -> None:
    [found] = findings(RULES, _type(name))
    assert found.suggestion == suggestion


def test_only_the_case_of_a_name_is_fixed() -> None:
    [wrong_case], [typo] = findings(RULES, _type("sgd")), findings(RULES, _type("SDG"))
    assert wrong_case.fix is not None
    assert wrong_case.fix.put == {"optimizer.type": "SGD"}
    assert typo.fix is None
