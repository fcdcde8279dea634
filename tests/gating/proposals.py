"""Configs that `autotune run` could build, drawn from the default space over many workloads."""

import random
from collections.abc import Iterator
from typing import Any

from autotune.job.model_shape import load_model_shape
from autotune.job.workload import Workload
from autotune.search.baselines import first_trials
from autotune.space import Choices, Parameter, SearchSpace, load_space
from autotune.study.candidate import Candidate, candidate_of_proposal
from tests.job.workloads import resolve_workload

_BASES: tuple[dict[str, Any], ...] = (
    {},
    {"fp16": {"enabled": True, "initial_scale_power": 12}, "steps_per_print": 100},
    {
        "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
        "zero_optimization": {"stage": 3, "offload_param": {"device": "none"}},
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_clipping": "auto",
    },
    {"zero_optimization": {"stage": 2, "overlap_comm": True}, "wall_clock_breakdown": False},
)
_MODELS = ("125m", "1.3b", "7b", "70b", "gpt2-xl")
_WORLDS = (1, 2, 3, 8, 12, 64)


def workload_and_base(dice: random.Random) -> tuple[Workload, dict[str, Any]]:
    """Return one of many jobs."""
    gpus = dice.choice(_WORLDS)
    base = dice.choice(_BASES)
    workload = resolve_workload(
        load_model_shape(dice.choice(_MODELS)),
        gpus=gpus,
        base=base,
        seq_len=dice.choice([128, 1024]),
        global_batch_size=gpus * dice.choice([1, 6, 8, 32]),
        precision=None if "fp16" in base else dice.choice([None, "bf16", "fp32"]),
        device_kind=dice.choice(["cuda", "cpu"]),
    )
    return workload, base


def drawn(num: int, *, seed: int) -> Iterator[tuple[Candidate, Workload]]:
    """Yield baselines and points of the default space, as a study would make them."""
    dice = random.Random(seed)
    while num > 0:
        workload, base = workload_and_base(dice)
        space = load_space("zero").bind(workload, base)
        points = [
            candidate_of_proposal(
                space.canonical(_point(space, dice)), space, base=base, workload=workload
            )
            for _ in range(8)
        ]
        baselines = first_trials(base, space=space, workload=workload)
        for candidate in [*points, *(baseline.plain[0] for baseline in baselines)]:
            yield candidate, workload
            num -= 1


def _point(space: SearchSpace, dice: random.Random) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for parameter in space.parameters:
        if parameter.acts(chosen):
            chosen[parameter.key] = _value(parameter, dice)
    return chosen


def _value(parameter: Parameter, dice: random.Random) -> Any:
    kind = parameter.kind
    if isinstance(kind, Choices):
        return dice.choice(kind.values)
    # The ends of a range are where rules bite.
    value = dice.choice([kind.low, kind.high, kind.low + dice.random() * (kind.high - kind.low)])
    return parameter.snap(type(kind.low)(value))
