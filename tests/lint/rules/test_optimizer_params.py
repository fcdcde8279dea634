"""Names and values in optimizer.params."""

from typing import Any

import pytest

from autotune.lint.finding import RefusedBy
from autotune.lint.rules.optimizer_params import RULES
from tests.lint.rules.asking import findings, reported, zero

P = "optimizer.params"


def _adamw(**params: Any) -> dict[str, Any]:
    return {"optimizer": {"type": "AdamW", "params": params}}


def _optimizer(name: str, **params: Any) -> dict[str, Any]:
    return {"optimizer": {"type": name, "params": params}}


OFFLOAD = zero(2, offload_optimizer={"device": "cpu"})


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (_adamw(max_grad_norm=1.0), [f"error max-grad-norm {P}.max_grad_norm"]),
        (_adamw(wd=0.1), [f"error optimizer-parameter {P}.wd"]),
        (_adamw(momentum=0.9), [f"error optimizer-parameter {P}.momentum"]),
        (
            _adamw(bias_correction=True, torch_adam=True),
            [f"error optimizer-parameter {P}.bias_correction"],
        ),
        (_adamw(fused=True), [f"error optimizer-parameter {P}.fused"]),
        (OFFLOAD | _adamw(set_grad_none=True), [f"error optimizer-parameter {P}.set_grad_none"]),
        (_optimizer("Lion", eps=1e-8), [f"error optimizer-parameter {P}.eps"]),
        (
            OFFLOAD | _optimizer("Adagrad", lr_decay=0.1),
            [f"error optimizer-parameter {P}.lr_decay"],
        ),
        (_optimizer("SGD", betas=[0.9, 0.99]), [f"error optimizer-parameter {P}.betas"]),
        (_optimizer("Muon", nesterov=True), [f"warning optimizer-parameter {P}.nesterov"]),
        (
            _adamw(lr="1e-4", weight_decay="0.1"),
            [f"error optimizer-value {P}.lr", f"error optimizer-value {P}.weight_decay"],
        ),
        (_adamw(lr="fast"), [f"error optimizer-value {P}.lr"]),
        (_adamw(lr=True), [f"error optimizer-value {P}.lr"]),
        (_adamw(lr=-1e-4), [f"error optimizer-value {P}.lr"]),
        (_adamw(betas=["0.9", "0.95"]), [f"error optimizer-value {P}.betas"]),
        (_adamw(betas=0.9), [f"error optimizer-value {P}.betas"]),
        (_adamw(betas=[0.9, 1.0]), [f"error optimizer-value {P}.betas"]),
        (_adamw(amsgrad=True), [f"error amsgrad {P}.amsgrad"]),
    ],
)
def test_a_fault_is_found(keys: dict[str, Any], expected: list[str]) -> None:
    assert reported(RULES, keys) == expected


@pytest.mark.parametrize(
    "keys",
    [
        {},
        _adamw(),
        _adamw(lr=1e-4, betas=[0.9, 0.95], eps=1e-8, weight_decay=0, bias_correction=True),
        _adamw(lr="auto", betas="auto", eps="auto", weight_decay="auto"),
        _adamw(lr=0, adam_w_mode=True, torch_adam=True, fused=True, amsgrad=True),
        _adamw(amsgrad=False),
        _adamw(_comment="peak rate"),
        OFFLOAD | _adamw(fp32_optimizer_states=False),
        OFFLOAD | _optimizer("Lion", fp32_optimizer_states=False),
        _optimizer("Adafactor", eps=[None, 1e-3]),
        _optimizer("SGD", momentum=0.9),
        _optimizer("Muon", momentum=0.95, muon_lr=0.02, adam_lr=1e-4),
        _optimizer("OneBitAdam", freeze_step=1000),
        {"optimizer": {"params": {"max_grad_norm": 1.0, "lr": "1e-4"}}},
        {"optimizer": {"type": "AdamW", "params": [1]}},
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any]) -> None:
    assert reported(RULES, keys) == []


def test_the_programs_own_optimizer_takes_its_own_parameters() -> None:
    assert reported(RULES, _adamw(wd=0.1, max_grad_norm=1), client_optimizer="AdamW") == []


@pytest.mark.parametrize(("norm", "refused_by"), [(0, RefusedBy.INIT), (None, RefusedBy.PARSE)])
def test_a_norm_that_is_not_a_number_fails_in_the_parser(norm: Any, refused_by: RefusedBy) -> None:
    [found] = findings(RULES, _adamw(max_grad_norm=norm))
    assert found.refused_by is refused_by


def test_a_norm_is_removed_only_where_clipping_stays_the_same() -> None:
    [same] = findings(RULES, _adamw(max_grad_norm=1) | {"gradient_clipping": 1.0})
    [other] = findings(RULES, _adamw(max_grad_norm=5) | {"gradient_clipping": 1.0})
    assert same.fix is not None
    assert same.fix.drop == {f"{P}.max_grad_norm"}
    assert other.fix is None


def test_a_quoted_number_is_fixed() -> None:
    [rate, betas] = findings(RULES, _adamw(lr=" 1e-4", betas=["0.9", "0.95"]))
    assert rate.fix is not None
    assert rate.fix.put == {f"{P}.lr": 1e-4}
    assert betas.fix is not None
    assert betas.fix.put == {f"{P}.betas": [0.9, 0.95]}
