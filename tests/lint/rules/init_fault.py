"""Configs that DeepSpeed's parser may take and `deepspeed.initialize` or the first step refuse.

Each comes with the nearest config that trains. All of them run on CPU ranks: fp16, CUDA kernels and
files on NVMe do not, so what depends on those is tested in the modules of the rules alone.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from autotune import dotted
from autotune.lint.subject import Launch, Subject

GPUS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class InitFault:
    """A fault, and the change that fixes it."""

    rule: str
    bad: Mapping[str, Any]
    """Dotted keys on top of a plain bf16 config."""
    good: Mapping[str, Any]
    """Dotted keys on top of the bad config."""
    refusal: str
    """DeepSpeed's message; a regular expression."""
    client_optimizer: str | None = None
    """Class of `torch.optim`; without it the config names AdamW."""
    pipeline_stages: int = 1

    def configs(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the bad config and the good one."""
        base: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
        if self.client_optimizer is None:
            # DeepSpeed's own Adam would be compiled first.
            base["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}
        bad = dotted.updated(base, deepcopy(dict(self.bad)))
        good = dotted.updated(dotted.without(bad, _dropped(self.good)), _put(self.good))
        return bad, good

    def subject(self, config: Mapping[str, Any]) -> Subject:
        """Return what the rules see of one of the configs."""
        client = self.client_optimizer
        return Subject(
            config=config,
            launch=Launch(
                gpus=GPUS,
                client_optimizer=f"torch.optim.{client}" if client else None,
                pipeline_stages=self.pipeline_stages,
            ),
        )

    def question(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the real DeepSpeed is asked about one of the configs."""
        return {
            "ds_config": config,
            "world_size": GPUS,
            "client_optimizer": self.client_optimizer,
            "pipeline_stages": self.pipeline_stages,
        }


class _Drop:
    """Marks a key that the good config does not have."""


DROP = _Drop()


def _dropped(changes: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(key for key, value in changes.items() if value is DROP)


def _put(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in changes.items() if value is not DROP}


def zero(stage: int, **keys: Any) -> dict[str, Any]:
    return {f"zero_optimization.{key}": value for key, value in ({"stage": stage} | keys).items()}


def fault(
    rule: str, bad: Mapping[str, Any], good: Mapping[str, Any], refusal: str, **launch: Any
) -> InitFault:
    return InitFault(rule=rule, bad=bad, good=good, refusal=refusal, **launch)
