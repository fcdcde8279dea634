"""Hands configs to the real `deepspeed.initialize`, each in a fork of its own.

``python -m tests.lint.rules.initialize_all`` reads a list of questions from standard input and
prints a list of answers: why DeepSpeed refuses the config, or null. Rank 0 of a fake process group
on CPU; the model is two small layers.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.forks import in_forks

STEPS = 1
"""Optimizer steps after `initialize`: some faults show in the first one only."""


def main() -> None:
    """Answer every question."""
    questions = json.load(sys.stdin)
    answer_file = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # DeepSpeed prints there
    _import_deepspeed()
    answers = list(in_forks(_refusal, questions, if_dead="the process died"))
    with os.fdopen(answer_file, "w") as file:
        json.dump(answers, file)


def _import_deepspeed() -> None:
    os.environ.update(
        DS_ACCELERATOR="cpu",
        OMP_NUM_THREADS="1",
        RANK="0",
        LOCAL_RANK="0",
        LOCAL_SIZE="4",
        TORCHDYNAMO_DISABLE="1",  # Muon would be compiled in every child
    )
    import deepspeed  # noqa: F401
    from deepspeed import ops
    from deepspeed.runtime.zero.muon import muon_optimizer  # noqa: F401  slow to import

    # Its compilation takes a minute and is not needed.
    ops.__compatible_ops__["deepspeed_shm_comm"] = False


def _refusal(question: dict[str, Any]) -> str | None:
    try:
        engine = _engine(**question)
        _step(engine, pipeline=question.get("pipeline_stages", 1) > 1)
    except BaseException as error:  # noqa: BLE001  whatever it raises is its refusal
        frames = traceback.extract_tb(error.__traceback__)
        place = next((f for f in reversed(frames) if "deepspeed" in f.filename), frames[-1])
        where = f"{Path(place.filename).name}: {place.name}"
        return f"{type(error).__name__} in {where}: {' '.join(str(error).split())[:300]}"
    return None


def _engine(
    *,
    ds_config: dict[str, Any],
    world_size: int = 4,
    client_optimizer: str | None = None,
    pipeline_stages: int = 1,
) -> Any:
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ["WORLD_SIZE"] = str(world_size)
    torch.set_num_threads(1)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    import deepspeed

    deepspeed.init_distributed("fake", dist_init_required=False)
    layers = [torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)]
    model: torch.nn.Module = torch.nn.Sequential(*layers)
    if pipeline_stages > 1:
        from deepspeed.pipe import PipelineModule

        model = PipelineModule(layers, num_stages=pipeline_stages)
    optimizer = None
    if client_optimizer is not None:
        optimizer = getattr(torch.optim, client_optimizer)(model.parameters(), lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=ds_config)
    return engine


def _step(engine: Any, *, pipeline: bool) -> None:
    import torch

    if pipeline or engine.optimizer is None:
        return
    dtype = next(engine.module.parameters()).dtype
    # ZenFlow counts micro steps itself and reports 0.
    for _ in range(STEPS * max(1, engine.gradient_accumulation_steps())):
        loss = engine(torch.ones(2, 16, dtype=dtype)).float().mean()
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
