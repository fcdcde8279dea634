"""Benchmark: measured rows for what the recorded ones lack, with the prediction beside each.

Run by hand on a machine with one CUDA device, nvcc and no other job on the device:
``python -m tests.benchmarks.gpu_memory_rows rows.csv``. One process plays rank 0 of several under
torch's fake process group. Every row is written as soon as it is measured: the prediction, made
before the run, the measured numbers, and the errors. The last rows run under real caps on the
allocator, a few per cent below and above what the model says is needed.
"""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

GIB = 2**30
TIMEOUT_S = 240
_LLAMA = {
    "model_type": "llama",
    "hidden_size": 2_048,
    "intermediate_size": 5_504,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 32_000,
    "tie_word_embeddings": False,
}
_TIED = _LLAMA | {"vocab_size": 128_256, "num_key_value_heads": 4, "tie_word_embeddings": True}
_GPT2 = {
    "model_type": "gpt2",
    "n_embd": 1_600,
    "n_layer": 24,
    "n_head": 25,
    "vocab_size": 50_257,
    "n_positions": 1_024,
    "tie_word_embeddings": True,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
_OPT = {
    "model_type": "opt",
    "hidden_size": 2_048,
    "ffn_dim": 8_192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "vocab_size": 50_272,
    "word_embed_proj_dim": 2_048,
    "max_position_embeddings": 2_048,
    "tie_word_embeddings": True,
    "dropout": 0.1,
}
_MIXTRAL = _LLAMA | {
    "model_type": "mixtral",
    "hidden_size": 1_024,
    "intermediate_size": 2_816,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
_QWEN3 = _LLAMA | {"model_type": "qwen3", "head_dim": 128, "num_key_value_heads": 4}
_FP16 = {"bf16": {}, "fp16": {"enabled": True, "loss_scale": 1}}
_FP32: dict[str, Any] = {"bf16": {}}
_WIDE = {"data_types": {"grad_accum_dtype": "fp32"}}
_CPU = {"offload_optimizer": {"device": "cpu"}}
_LION = {"optimizer": {"type": "Lion", "params": {"lr": 1e-5}}}

# Model, `zero_optimization`, other ds_config keys, other fields of the job.
_Sketch = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]
SKETCHES: tuple[_Sketch, ...] = (
    *((_LLAMA, {"stage": stage}, _FP16, {}) for stage in (0, 1, 2, 3)),
    *((_LLAMA, {"stage": stage}, _FP32, {"micro_batch": 1}) for stage in (0, 2, 3)),
    *((_LLAMA, {"stage": stage}, _WIDE, {}) for stage in (1, 2, 3)),
    *((_TIED, {"stage": stage}, {}, {}) for stage in (1, 2, 3)),
    *(
        (_LLAMA, {"stage": stage} | _CPU, {"gradient_accumulation_steps": 2}, {})
        for stage in (2, 3)
    ),
    (_LLAMA, {"stage": 0}, {}, {}),
    (_LLAMA, {"stage": 3, "overlap_comm": False}, {}, {}),
    (_LLAMA, {"stage": 2, "contiguous_gradients": False}, {}, {}),
    (_LLAMA, {"stage": 2, "reduce_scatter": False}, {}, {}),
    (_LLAMA, {"stage": 2}, _LION, {}),
    *((_GPT2, {"stage": stage}, {}, {"seq_len": 1_024}) for stage in (1, 2, 3)),
    (_GPT2, {"stage": 2}, {}, {"seq_len": 1_024, "checkpointing": True}),
    (_OPT, {"stage": 2}, {}, {}),
    *((_MIXTRAL, {"stage": stage}, {}, {}) for stage in (2, 3)),
    (_QWEN3, {"stage": 2}, {}, {}),
    (_LLAMA, {"stage": 2}, {}, {"attention": "eager", "seq_len": 1_024}),
    *((_LLAMA, {"stage": stage}, {}, {"frozen": 12}) for stage in (2, 3)),
)
CAPPED: tuple[_Sketch, ...] = (
    (_LLAMA, {"stage": 2}, {}, {}),
    (_LLAMA, {"stage": 3}, {}, {}),
    (_TIED, {"stage": 1}, {}, {}),
)
CAPS = (0.96, 0.99, 1.02, 1.05)
"""Of what is predicted without any margin."""


def job_of(sketch: _Sketch, ranks: int = 8) -> dict[str, Any]:
    """Complete a sketch to what `tests.predict.real_engine.train` takes."""
    model, zero, keys, fields = sketch
    ds_config = {
        "train_micro_batch_size_per_gpu": fields.get("micro_batch", 4),
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
        "gradient_clipping": 1.0,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": zero,
    } | keys
    fp16 = ds_config.get("fp16", {}).get("enabled")
    bf16 = ds_config["bf16"].get("enabled")
    frozen = fields.get("frozen", 0)
    names = ["embed", "model.norm", "lm_head", *(f"layers.{i}." for i in range(frozen))]
    return {
        "world_size": ranks,
        "model": model,
        "ds_config": ds_config,
        "dtype": "bfloat16" if bf16 else "float16" if fp16 else "float32",
        "micro_batch": ds_config["train_micro_batch_size_per_gpu"],
        "seq_len": fields.get("seq_len", 2_048),
        "attention": fields.get("attention", "sdpa"),
        "checkpointing": fields.get("checkpointing", False),
        "frozen": names if frozen else [],
        "num_frozen_layers": frozen,
    }


def predicted(job: Mapping[str, Any]) -> dict[str, float]:
    """Return the model's numbers for a job, in GiB."""
    from autotune.hardware import find_device
    from autotune.model_shape import shape_from_hf_config
    from autotune.predict.memory.predict import Surroundings, predict_memory
    from autotune.predict.training import ModelSettings, read_training
    from autotune.workload import Workload

    shape = shape_from_hf_config(job["model"], name="row", where="row")
    ranks, accumulation = job["world_size"], job["ds_config"]["gradient_accumulation_steps"]
    workload = Workload(
        model=shape,
        seq_len=job["seq_len"],
        global_batch_size=ranks * accumulation * job["micro_batch"],
        world_size=ranks,
        precision="bf16",
        optimizer={},
        gradient_clipping=1.0,
        attn_implementation=job["attention"],
    )
    kept = shape.num_hidden_layers - job["num_frozen_layers"]
    share = kept / shape.num_hidden_layers
    frozen = job["num_frozen_layers"] > 0
    settings = ModelSettings(
        activation_checkpointing=job["checkpointing"],
        trainable_parameters=round(shape.num_parameters * share) if frozen else None,
        trained_on_top=frozen,
    )
    surroundings = Surroundings(device=find_device("h200"), emulated=True)
    bill = predict_memory(read_training(job["ds_config"], workload, settings), surroundings)
    device = bill.device
    return {
        "init_allocated_gib": (device.init_allocated_bytes or 0) / GIB,
        "peak_allocated_gib": device.peak_allocated_bytes / GIB,
        "peak_reserved_gib": (device.peak_reserved_bytes or 0) / GIB,
        "host_rss_gib": bill.host.rank_bytes / GIB,
    }


def measure(job: Mapping[str, Any], cap_gib: float | None = None) -> dict[str, Any]:
    """Run a job in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.gpu_memory_rows", "--rank"],
        input=json.dumps(dict(job) | {"cap_gib": cap_gib}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    out = "out of memory" in done.stderr
    return {"status": "oom" if out else f"crashed: {done.stderr.strip().splitlines()[-1:]}"}


def play_rank() -> None:
    """Be rank 0: train the job on stdin and print what the allocator says."""
    job = json.load(sys.stdin)
    ranks = str(job["world_size"])
    os.environ |= {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": ranks,
        "LOCAL_SIZE": ranks,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }
    import resource

    import deepspeed
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from tests.predict import real_engine

    card = torch.cuda.get_device_properties(0).total_memory
    if job["cap_gib"]:
        torch.cuda.set_per_process_memory_fraction(job["cap_gib"] * GIB / card)
    torch.distributed.init_process_group("fake", rank=0, world_size=int(ranks), store=FakeStore())
    deepspeed.init_distributed()
    row: dict[str, Any] = {"status": "ok"}
    initialize = deepspeed.initialize

    def initialize_and_look(*args: Any, **kwargs: Any) -> Any:
        result = initialize(*args, **kwargs)
        row["init_allocated_gib"] = torch.cuda.memory_allocated() / GIB
        torch.cuda.reset_peak_memory_stats()
        return result

    deepspeed.initialize = initialize_and_look
    real_engine.train(job)
    row["peak_allocated_gib"] = torch.cuda.max_memory_allocated() / GIB
    row["peak_reserved_gib"] = torch.cuda.max_memory_reserved() / GIB
    row["alloc_retries"] = torch.cuda.memory_stats()["num_alloc_retries"]
    row["host_rss_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    print(json.dumps(row))  # noqa: T201


def rows() -> Iterator[dict[str, Any]]:
    """Predict, then measure, one job after the other."""
    for sketch in SKETCHES:
        job = job_of(sketch)
        yield _row(job, predicted(job), measure(job), cap=None)
    for sketch in CAPPED:
        job = job_of(sketch)
        expected = predicted(job)
        for cap in CAPS:
            capped = measure(job, cap * expected["peak_allocated_gib"])
            yield _row(job, expected, capped, cap=cap)


def _row(
    job: Mapping[str, Any],
    expected: Mapping[str, float],
    found: Mapping[str, Any],
    *,
    cap: float | None,
) -> dict[str, Any]:
    row = {
        "model": json.dumps(job["model"]),
        "ds_config": json.dumps(job["ds_config"]),
        "world_size": job["world_size"],
        "micro_batch": job["micro_batch"],
        "seq_len": job["seq_len"],
        "attention": job["attention"],
        "checkpointing": job["checkpointing"],
        "num_frozen_layers": job["num_frozen_layers"],
        "cap": cap,
        "status": found["status"],
        "alloc_retries": found.get("alloc_retries"),
    }
    for name, value in expected.items():
        measured = found.get(name)
        row |= {name: measured, f"predicted_{name}": round(value, 4)}
        row[f"error_{name}"] = round(value / measured - 1, 5) if measured else None
    return row


def main() -> None:
    """Measure every row into the file that the command line names."""
    if sys.argv[1:] == ["--rank"]:
        play_rank()
        return
    (path,) = sys.argv[1:]
    with Path(path).open("w", encoding="utf-8", newline="") as lines:
        writer: csv.DictWriter[str] | None = None
        for row in rows():
            if writer is None:
                writer = csv.DictWriter(lines, fieldnames=list(row))
                writer.writeheader()
            writer.writerow(row)
            lines.flush()
            zero = json.loads(row["ds_config"])["zero_optimization"]
            kind = json.loads(row["model"])["model_type"]
            error = row["error_peak_allocated_gib"]
            print(f"{row['status']} {kind} {zero} cap {row['cap']}: peak error {error}")  # noqa: T201


if __name__ == "__main__":
    main()
