import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from autotune.trial.spec import TrialSpec

# A process of its own: DeepSpeed's process group would stay behind.
_SCRIPT = """
import json, sys
import deepspeed, torch
import torch.distributed as dist
from autotune.trial.model import build_model
from autotune.trial.spec import TrialSpec

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
deepspeed.init_distributed("gloo")

def weights(spec):
    parameters = dict(build_model(TrialSpec.from_json(spec), "cpu").named_parameters())
    sharded = spec["ds_config"]["zero_optimization"]["stage"] == 3
    with deepspeed.zero.GatheredParameters(list(parameters.values()), enabled=sharded):
        return {name: p.detach().clone() for name, p in parameters.items()}

answer = {}
for name, specs in json.load(sys.stdin).items():
    first, *others = [weights(spec) for spec in specs]
    answer[name] = [
        first.keys() == other.keys() and all(torch.equal(w, other[n]) for n, w in first.items())
        for other in others
    ]
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def alike(make_spec: Callable[..., TrialSpec]) -> dict[str, list[bool]]:
    """Whether models that were built in two ways have the same weights."""

    def sent(stage: int, **fields: Any) -> dict[str, Any]:
        return make_spec({"zero_optimization.stage": stage}, gpus=1, **fields).to_json()

    pairs = {
        "stages": [sent(stage, same_weights=True) for stage in (1, 3)],
        "checkpointing": [
            sent(1, same_weights=True, activation_checkpointing=on) for on in (True, False)
        ],
        "seeds": [sent(1, same_weights=True, seed=seed) for seed in (1, 2)],
        "drawn by torch": [sent(1), sent(1)],
    }
    result = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        env=os.environ | {"DS_ACCELERATOR": "cpu", "RANK": "0", "LOCAL_RANK": "0"},
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3_000:]
    answer: dict[str, list[bool]] = json.loads(result.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("what", ["stages", "checkpointing", "drawn by torch"])
def test_models_start_from_the_same_weights(alike: dict[str, list[bool]], what: str) -> None:
    assert alike[what] == [True]


def test_another_seed_gives_other_weights(alike: dict[str, list[bool]]) -> None:
    assert alike["seeds"] == [False]
