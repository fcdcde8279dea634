"""Train a tiny model on four emulated ranks and print losses and collectives. A process's program.

Usage: python -m tests.trial.timed_group.train_timed STAGE..., with the environment of rank 0 of 4
(see `test_group`). Prints a list with an object for each stage.
"""

import json
import sys
from collections import Counter
from typing import Any

import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations import HfDeepSpeedConfig

from autotune.trial.preload import preload
from autotune.trial.timed_group import group
from tests.forks import in_forks

KINDS: Counter[str] = Counter()


class CountedGroup(group.TimedGroup):
    """Counts every collective; a time is asked for once a kind and size only."""

    def _run(self, kind: str, *rest: Any) -> Any:
        KINDS[kind] += 1
        return super()._run(kind, *rest)


def train(question: dict[str, int]) -> dict[str, Any]:
    stage = question["stage"]
    group.TimedGroup = CountedGroup  # type: ignore[misc]
    group.register(lambda _: 1e-4)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    dist.init_process_group(group.BACKEND, store=HashStore(), rank=0, world_size=4)
    deepspeed.init_distributed(group.BACKEND, dist_init_required=False)
    ds_config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    }
    # It must live as long as the model is built: transformers looks for it.
    keep = HfDeepSpeedConfig(ds_config) if stage == 3 else None
    shape = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=128,
    )
    engine, *_ = deepspeed.initialize(model=LlamaForCausalLM(shape), config=ds_config)
    del keep
    losses = []
    for _ in range(3):
        KINDS.clear()
        tokens = torch.randint(0, 128, (2, 16))
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach()))
    return {"losses": losses, "kinds": KINDS}


if __name__ == "__main__":
    preload("llama", device_kind="cpu")
    results = list(in_forks(train, [{"stage": int(stage)} for stage in sys.argv[1:]], if_dead=None))
    sys.stdout.write(json.dumps(results) + "\n")
