"""Finds, reviews and gates the DeepSpeed config of a long training run.

`Job` describes a training job; `plan` predicts its memory and speed, `gate` checks a ds_config,
and `tune` searches for the fastest one. They are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.api import Job, gate, plan, plan_space, tune

__version__ = "0.1.0"
__all__ = ["Job", "__version__", "gate", "plan", "plan_space", "tune"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("autotune.api"), name)
    raise AttributeError(f"module 'autotune' has no attribute {name!r}")
