"""The optimizer: its name, and whether ZeRO and DeepSpeed's step support it."""

import difflib
from collections.abc import Iterator

from autotune.job.launcher import Launcher
from autotune.lint.config_values import ZERO, fault, flag, is_set, number, value_of
from autotune.lint.finding import Fix, RefusedBy, Severity
from autotune.lint.optimizers import (
    OWN,
    TORCH,
    configured_optimizer,
    is_tested,
    is_tested_class,
)
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_TYPE = "optimizer.type"
_UNTESTED = "zero_allow_untested_optimizer"
_PROPER = {
    "adam": "Adam",
    "adamw": "AdamW",
    "adagrad": "Adagrad",
    "lamb": "Lamb",
    "lion": "Lion",
    "muon": "Muon",
}
_REMOVED = {"onebitadam": "AdamW", "onebitlamb": "Lamb", "zerooneadam": "AdamW"}
"""1-bit optimizers, removed in DeepSpeed 0.19."""
_NS_METHODS = ("gram", "standard")


@rule("unknown-optimizer", Severity.ERROR, refused_by=RefusedBy.INIT)
def unknown_optimizer(subject: Subject) -> Iterator[Fault]:
    """DeepSpeed has no optimizer of this name.

    `runtime/engine.py: _do_sanity_check` accepts DeepSpeed's names in any case (Adam, AdamW,
    Adagrad, Lamb, Lion, Muon, MuAdam, MuAdamW, MuSGD), else classes of `torch.optim` as torch
    spells them. The 1-bit optimizers OneBitAdam, OneBitLamb and ZeroOneAdam were removed.

    Suggestion: use one of these names, or pass your optimizer to `deepspeed.initialize`.
    """
    name = configured_optimizer(subject)
    if name is None or name in OWN or name in TORCH:
        return
    known = {**{n.lower(): n for n in TORCH}, **_PROPER}
    instead = _REMOVED.get(name.lower())
    near = difflib.get_close_matches(name.lower(), known, n=1)
    if instead:
        text, suggestion = "was removed from DeepSpeed", f'use "{instead}"'
    elif near:
        text, suggestion = "DeepSpeed has no such optimizer", f'did you mean "{known[near[0]]}"?'
    else:
        text = "DeepSpeed has no such optimizer"
        suggestion = f"use one of {', '.join([*_PROPER.values(), *TORCH])}, or pass your own to "
        suggestion += "deepspeed.initialize"
    spelling = known.get(name.lower())
    fix = Fix(put={_TYPE: spelling}) if spelling else None
    yield fault(subject, _TYPE, text, suggestion=suggestion, fix=fix)


@rule("optimizer-without-type", Severity.ERROR)
def optimizer_without_type(subject: Subject) -> Iterator[Fault]:
    """The optimizer section names no optimizer.

    `runtime/config.py: get_optimizer_name` then finds none, and `optimizer.params` is never read.
    ZeRO stages 1 and 2 refuse to train without an optimizer, unless the program creates one.

    Suggestion: add a type, or remove the section.
    """
    section = subject.section("optimizer")
    if section and section.get("type") is None and "params" in section:
        yield fault(
            subject,
            "optimizer",
            "without a type DeepSpeed ignores the section",
            suggestion='add "type": "AdamW", or remove the section',
        )


@rule("two-optimizers", Severity.WARNING)
def two_optimizers(subject: Subject) -> Iterator[Fault]:
    """Both the program and the config define an optimizer.

    `runtime/engine.py: _configure_optimizer` uses the program's optimizer and does not read the
    section.

    Suggestion: remove the section, or pass no optimizer to `deepspeed.initialize`.
    """
    client = subject.launch.client_optimizer
    if client is not None and is_set(subject, _TYPE):
        yield fault(
            subject,
            _TYPE,
            f"DeepSpeed uses the program's {client} and ignores the section",
            suggestion="remove the section, or pass no optimizer to deepspeed.initialize",
        )


@rule("untested-optimizer", Severity.ERROR, refused_by=RefusedBy.INIT)
def untested_optimizer(subject: Subject) -> Iterator[Fault]:
    """The optimizer is not tested with ZeRO.

    With ZeRO `runtime/engine.py: _do_optimizer_sanity_check` accepts the optimizers of
    `runtime/zero/utils.py: ZERO_SUPPORTED_OPTIMIZERS` (Adam, AdamW, Adagrad, Lion, Muon and their
    CPU and fused forms) and any other only where `zero_allow_untested_optimizer` is true. ZeRO
    flattens and divides parameters, so an optimizer that uses a parameter's shape or norm
    (Adafactor, Lamb, LARS) trains differently. Hugging Face sets the key itself.

    Suggestion: set the key to true if the optimizer works element by element, or use AdamW.
    """
    if not subject.zero_stage or subject.launch.launcher == Launcher.HF:
        return
    if value_of(subject, _UNTESTED):
        return
    client, name = subject.launch.client_optimizer, configured_optimizer(subject)
    if client is not None:
        untested = None if is_tested_class(client) else client
    else:
        untested = name if name in (*OWN, *TORCH) and not is_tested(str(name)) else None
    if untested is not None:
        yield fault(
            subject,
            _UNTESTED,
            f"ZeRO stage {subject.zero_stage} was not tested with {untested}",
            suggestion=f"set {_UNTESTED} to true if it works element by element, or use AdamW",
        )


@rule("impossible-optimizer", Severity.ERROR, refused_by=RefusedBy.INIT)
def impossible_optimizer(subject: Subject) -> Iterator[Fault]:
    """A torch optimizer that does not work in DeepSpeed's step.

    LBFGS evaluates the loss again in a closure, and `runtime/engine.py: _take_model_step` passes
    none; SparseAdam refuses the dense gradients that DeepSpeed reduces.

    Suggestion: use AdamW.
    """
    name = configured_optimizer(subject)
    why = {"LBFGS": "needs a closure, which DeepSpeed's step does not pass"}
    why["SparseAdam"] = "refuses dense gradients"
    if name in why:
        yield fault(subject, _TYPE, why[name], suggestion='use "AdamW"')


@rule("lamb-loss-scale", Severity.ERROR, refused_by=RefusedBy.INIT)
def lamb_loss_scale(subject: Subject) -> Iterator[Fault]:
    """Lamb is used with a fixed loss scale.

    `runtime/engine.py: _do_sanity_check` asserts a dynamic loss scale (`fp16.loss_scale` 0) for
    Lamb, even where fp16 is off.

    Suggestion: set it to 0, or remove it.
    """
    scale = number(subject, "fp16.loss_scale")
    if configured_optimizer(subject) == "lamb" and scale is not None and scale != 0:
        yield fault(
            subject,
            "fp16.loss_scale",
            "Lamb needs a dynamic loss scale",
            suggestion="set it to 0 or remove it",
        )


@rule("muon", Severity.ERROR, refused_by=RefusedBy.INIT)
def muon(subject: Subject) -> Iterator[Fault]:
    """Muon is combined with a setting that it does not support.

    Muon needs whole gradients: `runtime/zero/stage3.py: __init__` refuses it with `reduce_scatter`
    (on by default) and with quantized gradients. `ns_method` is gram or standard
    (`runtime/zero/muon/original_muon.py`).

    Suggestion: set `reduce_scatter` or the quantization to false.
    """
    if configured_optimizer(subject) != "muon":
        return
    if subject.zero_stage == 3:
        for name in ("reduce_scatter", "zero_quantized_gradients"):
            if flag(subject, f"{ZERO}.{name}"):
                yield fault(
                    subject,
                    f"{ZERO}.{name}",
                    "Muon at ZeRO stage 3 works without it only",
                    suggestion="set it to false",
                )
    method = value_of(subject, "optimizer.params.ns_method")
    if method is not None and method not in _NS_METHODS:
        yield fault(
            subject,
            "optimizer.params.ns_method",
            f"must be one of {', '.join(_NS_METHODS)}",
            suggestion="gram is the default",
        )


@rule("missing-mup", Severity.NOTE)
def missing_mup(subject: Subject) -> Iterator[Fault]:
    """The optimizer comes from a package that DeepSpeed does not install.

    MuAdam, MuAdamW and MuSGD are imported from `mup`; without it `runtime/engine.py:
    _configure_basic_optimizer` raises an UnboundLocalError.

    Suggestion: `pip install mup`.
    """
    if configured_optimizer(subject) in ("muadam", "muadamw", "musgd"):
        yield fault(subject, _TYPE, "comes from the package mup", suggestion="pip install mup")


RULES = (
    unknown_optimizer,
    optimizer_without_type,
    two_optimizers,
    untested_optimizer,
    impossible_optimizer,
    lamb_loss_scale,
    muon,
    missing_mup,
)
