"""What a ds_config makes of a tiny training run: every operation, allocation and collective.

Run as a script: reads a JSON list of ds_configs from stdin and writes a JSON list of fingerprints
to stdout. Rank 0 of two trains on the CPU under torch's fake process group, so one process is
enough. Nothing heavy is imported before that, since pytest imports this file to look for doctests.
"""

import gc
import hashlib
import json
import logging
import os
import sys
from typing import Any

RANK_0_OF_2 = {
    "DS_ACCELERATOR": "cpu",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
    "LOCAL_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",  # never opened: the fake group has no rendezvous
    "OMP_NUM_THREADS": "1",
}
BASE = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}


def train(config: dict[str, Any]) -> None:
    """Train two optimizer steps of two micro steps.

    Each of the three layers is larger than the small buckets that the tests ask for.
    """
    import deepspeed
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(3)))
    engine = deepspeed.initialize(model=model, config=config)[0]
    for _ in range(4):
        outputs = engine(torch.ones(2, 16, dtype=torch.bfloat16))
        engine.backward(outputs.float().pow(2).mean())
        engine.step()
    engine.destroy()


def fingerprint(config: dict[str, Any]) -> str:
    """Return a digest of all that the run does, or DeepSpeed's refusal."""
    from torch.profiler import ProfilerActivity, profile

    # Frees by the garbage collector would come at different times in equal runs.
    gc.collect()
    gc.disable()
    try:
        with profile(
            activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True
        ) as recorded:
            train(BASE | config)
    except Exception as error:  # noqa: BLE001  any refusal is an answer
        return f"refused: {type(error).__name__}: {error}"
    finally:
        gc.enable()
    done = [
        (event.name(), event.nbytes() if event.name() == "[memory]" else str(event.shapes()))
        for event in recorded.profiler.kineto_results.events()
        if event.name() == "[memory]" or event.name().startswith(("aten::", "c10d::"))
    ]
    return hashlib.sha256(json.dumps(done).encode()).hexdigest()


def main() -> None:
    """Fingerprint the configs on stdin."""
    # DeepSpeed greets on stdout.
    results, sys.stdout = sys.stdout, sys.stderr
    os.environ |= RANK_0_OF_2
    logging.disable(logging.CRITICAL)

    import deepspeed
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.set_num_threads(1)
    # It would compile for a minute, and training never calls it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    deepspeed.init_distributed()
    configs = json.load(sys.stdin)
    # The first run at a stage imports and caches; what it does besides is not the config's.
    for stage in {c.get("zero_optimization", {}).get("stage", 0) for c in configs}:
        fingerprint({"zero_optimization": {"stage": stage}})
    json.dump([fingerprint(config) for config in configs], results)


if __name__ == "__main__":
    main()
