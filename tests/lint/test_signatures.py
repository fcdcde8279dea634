"""The parameters that the rules know are those of the installed DeepSpeed and torch."""

import ast
import importlib.util
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from autotune.lint import optimizers, schedulers
from autotune.lint.optimizers import parameters_of
from autotune.lint.subject import Subject


def _deepspeed_parameters(module: str, name: str) -> dict[str, bool]:
    """Return the parameters of a class's constructor, and whether each must be given.

    DeepSpeed is read, not imported: its kernels would be looked for.
    """
    spec = importlib.util.find_spec("deepspeed")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse((Path(spec.origin).parent / module).read_text(encoding="utf-8"))
    [cls] = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name]
    [init] = [n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    names = [arg.arg for arg in init.args.args][2:]  # self and what is optimized
    required = len(names) - len(init.args.defaults)
    return {parameter: place < required for place, parameter in enumerate(names)}


def _torch_parameters(cls: type) -> dict[str, bool]:
    parameters = list(inspect.signature(cls).parameters.values())[1:]
    return {p.name: p.default is inspect.Parameter.empty for p in parameters}


def _parameters(optimizer: Mapping[str, Any], *, offload: str = "none") -> set[str]:
    zero = {"stage": 2, "offload_optimizer": {"device": offload}}
    config = {"optimizer": optimizer, "zero_optimization": zero}
    return set(parameters_of(Subject(config=config)) or ())


TAKEN_OUT = {"torch_adam", "adam_w_mode", "fp32_optimizer_states"}
"""By the engine, before it builds Adam."""


@pytest.mark.parametrize(
    ("name", "offload", "module", "cls", "passed"),
    [
        ("AdamW", "none", "ops/adam/fused_adam.py", "FusedAdam", set()),
        ("AdamW", "cpu", "ops/adam/cpu_adam.py", "DeepSpeedCPUAdam", {"adamw_mode"}),
        ("Lion", "none", "ops/lion/fused_lion.py", "FusedLion", set()),
        ("Lion", "cpu", "ops/lion/cpu_lion.py", "DeepSpeedCPULion", set()),
        ("Adagrad", "cpu", "ops/adagrad/cpu_adagrad.py", "DeepSpeedCPUAdagrad", set()),
        ("Lamb", "none", "ops/lamb/fused_lamb.py", "FusedLamb", {"max_grad_norm"}),
    ],
)
def test_deepspeeds_optimizers_take_these(
    name: str, offload: str, module: str, cls: str, passed: set[str]
) -> None:
    taken_out = TAKEN_OUT if name == "AdamW" else set()
    installed = _deepspeed_parameters(module, cls).keys() - passed
    assert _parameters({"type": name}, offload=offload) | passed == installed | taken_out | passed


@pytest.mark.parametrize("name", ["AdamW", "Adagrad", *optimizers.TORCH])
def test_torchs_optimizers_take_these(name: str) -> None:
    params = {"torch_adam": True} if name == "AdamW" else {}
    taken_out = TAKEN_OUT if name == "AdamW" else set()
    installed = _torch_parameters(getattr(torch.optim, name)).keys()
    assert _parameters({"type": name, "params": params}) == installed | taken_out


def test_torch_has_no_other_optimizers() -> None:
    classes = {
        name
        for name, cls in vars(torch.optim).items()
        if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)
    }
    own = {name for name in classes if name.lower() in optimizers.OWN}
    assert classes - own - {"Optimizer"} == optimizers.TORCH.keys()


@pytest.mark.parametrize("name", schedulers.OWN)
def test_deepspeeds_schedules_take_these(name: str) -> None:
    installed = _deepspeed_parameters("runtime/lr_schedules.py", name)
    assert set(schedulers.OWN[name]) == installed.keys()
    required = {parameter for parameter, needed in installed.items() if needed}
    assert set(schedulers.REQUIRED.get(name, ())) == required


def test_torch_has_no_other_schedules() -> None:
    base = torch.optim.lr_scheduler.LRScheduler
    classes = {
        name
        for name, cls in vars(torch.optim.lr_scheduler).items()
        if isinstance(cls, type) and issubclass(cls, base) and cls is not base
    }
    assert classes - {"_LRScheduler", "_SchedulerBase"} == set(schedulers.TORCH)
