"""A plain DeepSpeed script: trains an exported config. Knows nothing of autotune.

``python plain_script.py FOLDER [STEPS]`` reads FOLDER/ds_config.json and, from record.json, the
workload and the model settings; trains on random tokens with as many ranks as the record says;
prints one JSON object.
"""

import json
import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

# Before torch is imported: its threads must not exist when ranks are forked.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
if "--cpu" in sys.argv:
    os.environ["DS_ACCELERATOR"] = "cpu"

import importlib

import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist
from transformers import AutoConfig, AutoModelForCausalLM

# What DeepSpeed imports at its first engine. The record's peak counts from a process that has
# them, so this one must have them too before it is measured.
LAZY_IMPORTS = (
    "deepspeed.checkpoint",
    "deepspeed.module_inject.auto_ep_layer",
    "deepspeed.ops.adam",
    "deepspeed.ops.op_builder.all_ops",
    "deepspeed.runtime.bf16_optimizer",
    "deepspeed.runtime.superoffload.superoffload_stage3",
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "scipy.special",
    "torch._dynamo.backends.debugging",
    "torch._inductor.compile_fx",
    "torch.utils.cpp_extension",
    "transformers.modeling_flash_attention_utils",
    "transformers.models.auto.modeling_auto",
)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def status_bytes(field: str) -> int:
    """Return a size that the kernel keeps about this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(field)


def build_model(config: dict[str, Any], record: dict[str, Any], device: str) -> torch.nn.Module:
    """Build the recorded model with the recorded model settings."""
    fields = dict(record["workload"]["model"]["hf_config"])
    hf_config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    hf_config.use_cache = False
    settings = record["model_settings"]
    sharded = config.get("zero_optimization", {}).get("stage", 0) == 3
    with (
        deepspeed.zero.Init(config_dict_or_path=config, enabled=sharded),
        torch.device(device),
    ):
        model: torch.nn.Module = AutoModelForCausalLM.from_config(
            hf_config,
            attn_implementation=settings["attn_implementation"],
            dtype=DTYPES[record["workload"]["precision"]],
        )
    if settings["activation_checkpointing"]:
        model.gradient_checkpointing_enable()  # type: ignore[operator]
    return model.train()


def train(rank: int, port: int, folder: Path, num_steps: int, results: Any) -> None:
    """Train as one rank; put what came of it into `results`."""
    at_fork = status_bytes("VmRSS")
    config = json.loads((folder / "ds_config.json").read_text(encoding="utf-8"))
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    workload, on_cpu = record["workload"], record["environment"]["device_kind"] == "cpu"
    device = "cpu" if on_cpu else f"cuda:{rank}"
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(workload["world_size"]),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    if on_cpu:
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(rank)
    # Compiled for a minute and never called in training.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo" if on_cpu else "nccl")
    model = build_model(config, record, device)
    engine, *_ = deepspeed.initialize(model=model, config=config)
    micro_batch = engine.train_micro_batch_size_per_gpu()
    generator = torch.Generator().manual_seed(rank)
    vocab_size = workload["model"]["vocab_size"]
    losses, step_s = [], []
    for _ in range(num_steps):
        batches = [
            torch.randint(vocab_size, (micro_batch, workload["seq_len"]), generator=generator)
            for _ in range(engine.gradient_accumulation_steps())
        ]
        began = time.perf_counter()
        for tokens in batches:
            on_device = tokens.to(device)
            loss = engine(input_ids=on_device, labels=on_device).loss
            engine.backward(loss)
            engine.step()
        losses.append(float(loss.detach()))  # waits for the device
        step_s.append(time.perf_counter() - began)
    results.put(
        {
            "rank": rank,
            "losses": losses,
            "step_s": step_s,
            "global_steps": engine.global_steps,
            # As the record counts on CPU ranks: the peak, less what was resident at the fork.
            "peak_bytes": status_bytes("VmHWM") - at_fork
            if on_cpu
            else torch.cuda.max_memory_reserved(),
        }
    )
    dist.destroy_process_group()


def run(folder: Path, num_steps: int) -> list[dict[str, Any]]:
    """Train with all ranks of the record; return what each came to, in rank order."""
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    for name in LAZY_IMPORTS:
        importlib.import_module(name)
    kind = record["workload"]["model"]["model_type"]
    importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Forked, so that what is resident at the fork means the same as in the record.
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    ranks = [
        context.Process(target=train, args=(rank, port, folder, num_steps, results))
        for rank in range(record["workload"]["world_size"])
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    if any(rank.exitcode for rank in ranks):
        raise SystemExit("a rank failed")
    return sorted((results.get() for _ in ranks), key=lambda result: int(result["rank"]))


def main() -> None:
    """Run, and print."""
    folder = Path(sys.argv[1])
    num_steps = int(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2].isdigit() else 3
    ranks = run(folder, num_steps)
    imported = [name for name in sys.modules if name.partition(".")[0] == "autotune"]
    print(json.dumps({"ranks": ranks, "autotune_modules": imported}))  # noqa: T201


if __name__ == "__main__":
    main()
