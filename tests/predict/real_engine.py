"""What DeepSpeed itself allocates: one rank of several trains on the CPU, all bytes counted.

Run as a script: reads JSON jobs from stdin and writes JSON peaks to stdout. Torch's fake process
group stands for the other ranks, and the profiler counts bytes as tensors ask for them, so there is
no fragmentation and no rounding: what is checked is which buffers exist, how large, and when.
"""

import gc
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autotune.trial.preload import preload
from tests.forks import in_forks

MARK = "part: "


def main() -> None:
    """Run the jobs on stdin, each in a fork: a process group of its own rank and size."""
    # DeepSpeed greets on stdout.
    results, sys.stdout = sys.stdout, sys.stderr
    jobs = json.load(sys.stdin)
    os.environ |= {
        "DS_ACCELERATOR": "cpu",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",  # never opened: the fake group has no rendezvous
        "OMP_NUM_THREADS": "1",
        # With AMX oneDNN repacks 16-bit weights into scratch that torch's profiler counts; which
        # kernels run must not depend on the host.
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    }
    logging.disable(logging.CRITICAL)
    # Otherwise each fork would import the rest of it.
    preload("llama", device_kind="cpu")
    import torch

    torch.set_num_threads(1)
    json.dump(list(in_forks(measure, jobs, if_dead=None)), results)


def join(*, rank: int, world_size: int) -> None:
    """Become one rank of a world whose other ranks do not exist."""
    import deepspeed
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_SIZE": str(world_size),
    }
    # It would compile for a minute, and training never calls it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    torch.distributed.init_process_group(
        "fake", rank=rank, world_size=world_size, store=FakeStore()
    )
    deepspeed.init_distributed()


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Return the allocated bytes after initialisation and the peak of each part."""
    from torch.profiler import ProfilerActivity, profile

    join(rank=job["rank"], world_size=job["world_size"])
    gc.collect()
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            train(job)
    finally:
        gc.enable()
    events = list(recorded.profiler.kineto_results.events())
    marks = sorted(
        (event.start_ns(), event.name().removeprefix(MARK))
        for event in events
        if event.name().startswith(MARK)
    )
    changes = sorted(
        (event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"
    )
    return peaks_of(changes, marks)


def peaks_of(changes: list[tuple[int, int]], marks: list[tuple[int, str]]) -> dict[str, Any]:
    """Return the most that was allocated in each part, and what was after `init`."""
    peaks: dict[str, int] = {}
    allocated, part, waiting = 0, "init", list(marks)
    after_init = 0
    for time, change in changes:
        while waiting and waiting[0][0] <= time:
            if part == "init":
                after_init = allocated
            part = waiting.pop(0)[1]
            peaks[part] = max(peaks.get(part, 0), allocated)
        allocated += change
        peaks[part] = max(peaks.get(part, 0), allocated)
    return {"after_init": after_init, "peaks": peaks}


def train(job: dict[str, Any]) -> None:
    """Build the model as a trial would, and train two optimizer steps.

    Args:
        job: `model` (a Hugging Face config), `dtype`, `ds_config`, `micro_batch`, `seq_len`,
            `frozen` (parts of the names of parameters that are not trained), and optionally
            `attention` and `checkpointing`.
    """
    import deepspeed
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    values = dict(job["model"])
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    config.use_cache = False
    ds_config = job["ds_config"]
    sharded = ds_config["zero_optimization"].get("stage") == 3
    dtype = getattr(torch, job["dtype"])
    with deepspeed.zero.Init(config_dict_or_path=ds_config, enabled=sharded):
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation=job.get("attention", "sdpa"), dtype=dtype
        )
    model.train()
    if job.get("checkpointing"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not any(part in name for part in job["frozen"]))
    engine = deepspeed.initialize(
        model=model,
        model_parameters=[p for p in model.parameters() if p.requires_grad],
        config=ds_config,
    )[0]
    shape = job["micro_batch"], job["seq_len"]
    tokens = torch.zeros(shape, dtype=torch.long, device=engine.device)
    for _ in range(2 * ds_config["gradient_accumulation_steps"]):
        with _part("forward"):
            loss = engine(input_ids=tokens, labels=tokens, use_cache=False).loss
        with _part("backward"):
            engine.backward(loss)
            del loss
        with _part("optimizer step"):
            engine.step()
    with _part("end"):
        pass


@contextmanager
def _part(name: str) -> Iterator[None]:
    import torch

    with torch.profiler.record_function(MARK + name):
        yield


if __name__ == "__main__":
    main()
