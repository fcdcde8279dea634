"""The keys of `optimizer.params`: names and values."""

import difflib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from autotune.lint.config_values import as_number, fault, number, value_of
from autotune.lint.finding import Fix, RefusedBy, Severity
from autotune.lint.optimizers import MUON, configured_optimizer, parameters_of
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_PARAMS = "optimizer.params"
_NOT_NEGATIVE = ("lr", "weight_decay", "eps", "momentum", "alpha", "muon_lr", "adam_lr", "lr_decay")
_NUMBERS = (
    *_NOT_NEGATIVE,
    *("dampening", "rho", "lambd", "t0", "momentum_decay", "initial_accumulator_value"),
    *("max_coeff", "min_coeff"),
)


def _params(subject: Subject) -> dict[str, Any]:
    section = subject.section(_PARAMS)
    return {str(key): value for key, value in section.items()} if section else {}


@rule("max-grad-norm", Severity.ERROR, refused_by=RefusedBy.INIT)
def max_grad_norm(subject: Subject) -> Iterator[Fault]:
    """Clipping is set in the optimizer's parameters.

    `runtime/engine.py: _configure_basic_optimizer` raises on `optimizer.params.max_grad_norm`,
    whatever its value; one that is not a number fails earlier, in `runtime/config.py:
    _do_warning_check`.

    Suggestion: use `gradient_clipping` at the top level (1.0 unless set).
    """
    params, key = _params(subject), f"{_PARAMS}.max_grad_norm"
    if "max_grad_norm" not in params or subject.value("optimizer.type") is None:
        return
    norm = params["max_grad_norm"]
    compared = isinstance(norm, int | float)
    if compared and configured_optimizer(subject) is None:
        return  # DeepSpeed uses the program's optimizer and does not read the section.
    same = as_number(norm) is not None and norm == number(subject, "gradient_clipping")
    found = fault(
        subject,
        key,
        "not an optimizer parameter for DeepSpeed, which refuses it",
        suggestion="remove it; gradient_clipping at the top level clips"
        + ("" if same or not compared else f": set it to {norm}"),
        fix=Fix(drop=frozenset({key})) if same else None,
    )
    yield found if compared else replace(found, refused_by=RefusedBy.PARSE)


@rule("optimizer-parameter", Severity.ERROR, refused_by=RefusedBy.INIT)
def optimizer_parameter(subject: Subject) -> Iterator[Fault]:
    """The optimizer has no such parameter.

    `runtime/engine.py: _configure_basic_optimizer` passes `optimizer.params` to the constructor:
    FusedAdam for Adam and AdamW, DeepSpeedCPUAdam with offload, and torch's class with
    `torch_adam`. Each raises a TypeError for an unknown name. Only Muon drops such names silently.

    Suggestion: the message names the nearest parameter, or those that exist.
    """
    name, params = configured_optimizer(subject), _params(subject)
    muon = name == "muon"
    known = MUON if muon else parameters_of(subject)
    if known is None:
        return
    for param in params:
        # `max_grad_norm` has another rule; comments are not checked.
        if param in known or param == "max_grad_norm" or param.startswith(("_", "#", "//")):
            continue
        near = difflib.get_close_matches(param, known, n=1)
        yield fault(
            subject,
            f"{_PARAMS}.{param}",
            f"{subject.value('optimizer.type')} has no such parameter"
            + (" and ignores it" if muon else " here"),
            suggestion=f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}",
            severity=Severity.WARNING if muon else None,
        )


@rule("optimizer-value", Severity.ERROR, refused_by=RefusedBy.INIT)
def optimizer_value(subject: Subject) -> Iterator[Fault]:
    """A parameter of the optimizer is not a number, or out of range.

    `runtime/engine.py: _configure_basic_optimizer` passes `optimizer.params` on unchanged: a string
    such as "1e-4" (YAML 1.1 reads 1e-8 as one too) passes the parser and fails in the optimizer's
    constructor or first step. torch refuses negative learning rates, decays and eps, and betas
    outside [0, 1); DeepSpeed's kernels compute with them.

    Suggestion: write a number without quotes.
    """
    if configured_optimizer(subject) is None:
        return
    for param, value in _params(subject).items():
        key = f"{_PARAMS}.{param}"
        if param in _NUMBERS and value != "auto":
            yield from _number_fault(subject, key, value)
        elif param == "betas" and value != "auto":
            yield from _betas_fault(subject, key, value)


def _number_fault(subject: Subject, key: str, value: Any) -> Iterator[Fault]:
    if isinstance(value, str):
        try:
            intended = float(value)
        except ValueError:
            intended = math.nan
        finite = math.isfinite(intended)
        yield fault(
            subject,
            key,
            "must be a number, not a string",
            suggestion=f"write {_in_json_and_yaml(intended)} without quotes" if finite else None,
            fix=Fix(put={key: intended}) if finite else None,
        )
    elif isinstance(value, bool | list | dict):
        # Adafactor's eps is a pair.
        if not (key.endswith(".eps") and isinstance(value, list)):
            yield fault(subject, key, "must be a number", suggestion="write a number")
    elif isinstance(value, int | float) and value < 0 and key.rpartition(".")[2] in _NOT_NEGATIVE:
        yield fault(subject, key, "must be at least 0", suggestion=f"did you mean {-value}?")


def _in_json_and_yaml(number_: float) -> str:
    """Return a number that both read as one; YAML 1.1 reads 1e-08 as a string.

    Example:
        >>> _in_json_and_yaml(1e-8), _in_json_and_yaml(0.1)
        ('1.0e-08', '0.1')
    """
    text = repr(number_)
    return text if "." in text else text.replace("e", ".0e")


def _betas_fault(subject: Subject, key: str, value: Any) -> Iterator[Fault]:
    pair = list(value) if isinstance(value, list | tuple) else []
    intended = [float(beta) for beta in pair if isinstance(beta, str) and _is_number(beta)]
    if len(pair) == 2 and len(intended) == 2:
        yield fault(
            subject,
            key,
            "must be two numbers, not strings",
            suggestion=f"write {intended}",
            fix=Fix(put={key: intended}),
        )
    elif len(pair) != 2 or not all(_is_beta(beta) for beta in pair):
        yield fault(
            subject,
            key,
            "must be two numbers of at least 0 and less than 1",
            suggestion="[0.9, 0.999] is usual",
        )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_beta(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


@rule("amsgrad", Severity.ERROR, refused_by=RefusedBy.INIT)
def amsgrad(subject: Subject) -> Iterator[Fault]:
    """AMSGrad is set for a DeepSpeed optimizer that does not have it.

    FusedAdam, DeepSpeedCPUAdam and FusedLamb raise on `amsgrad` (`ops/adam/fused_adam.py:
    __init__`, `ops/adam/cpu_adam.py: add_param_group`); torch's Adam has it.

    Suggestion: remove it, or set `torch_adam` to true with Adam.
    """
    name = configured_optimizer(subject)
    torch_adam = bool(value_of(subject, f"{_PARAMS}.torch_adam"))
    if name not in ("adam", "adamw", "lamb") or (torch_adam and name != "lamb"):
        return
    if value_of(subject, f"{_PARAMS}.amsgrad") is True:
        yield fault(
            subject,
            f"{_PARAMS}.amsgrad",
            "DeepSpeed's kernels do not have it",
            suggestion="remove it, or set optimizer.params.torch_adam to true with Adam",
        )


RULES = (
    max_grad_norm,
    optimizer_parameter,
    optimizer_value,
    amsgrad,
)
