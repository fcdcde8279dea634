"""Speeds that others published, as jobs: tests/data/published_numbers.csv, its rows by line number.

Taken are all rows with ZeRO or an equivalent (FSDP FULL_SHARD) that give parameters, sequence
length, micro batch, GPUs, kind of GPU, stage, checkpointing, precision and a speed. What a row does
not say is taken from what its framework does, and the shape from its number of parameters.
"""

import csv
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from autotune.job.device import Device, find_device
from autotune.job.model_shape import ModelShape
from autotune.job.workload import Workload
from autotune.predict.links.communication import Links
from autotune.predict.throughput import predict_throughput
from autotune.predict.throughput.constants import RATES, Rates
from autotune.predict.throughput.kernels import matmul_s
from autotune.predict.throughput.parallel import bubble, rank_training
from autotune.predict.throughput.surroundings import SpeedSurroundings
from autotune.predict.training_job import ModelSettings, Training, read_training
from autotune.study.step_times import Interval
from tests.predict.rows import DATA

FILE = "published_numbers.csv"
NEEDED = (
    "params",
    "seq_len",
    "micro_batch",
    "gpus",
    "gpu_type",
    "zero_stage",
    "act_ckpt",
    "precision",
)
SPEEDS = ("tokens_per_s_per_gpu", "samples_per_s", "step_time_s", "tflops_per_gpu")
VOCABULARY = 50_432
SHAPES = (
    (24, 1024),
    (24, 1536),
    (24, 2048),
    (32, 2560),
    (32, 4096),
    (40, 5120),
    (44, 6144),
    (48, 7168),
    (64, 8192),
    (80, 8192),
    (96, 12288),
)
"""Layers and width as the GPT-3 and LLaMA papers pair them."""

FSDP_RATES = replace(RATES, hook_s=0.0, piece_s=0.0, call_s=0.0, step_launches=1.0)
"""A block's parameters are one flat tensor there, gathered and sharded in one piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One row."""

    line: int
    """In the file; the header is line 1."""
    row: dict[str, str]
    training: Training
    surroundings: SpeedSurroundings
    rates: Rates
    """FSDP has neither the hooks nor the loops of DeepSpeed's stage 3."""
    tokens_per_s: float
    """Of all GPUs, as published."""

    @property
    def predicted(self) -> Interval:
        """Tokens per second of all GPUs, by the model."""
        speed = predict_throughput(self.training, self.surroundings, rates=self.rates)
        share = speed.step_s / (speed.step_s + self._last_modules_s())
        rates = speed.tokens_per_s, speed.tokens_per_s_low, speed.tokens_per_s_high
        return Interval(*(share * rate for rate in rates))

    def _last_modules_s(self) -> float:
        """Return what recomputing whole layers adds.

        Only since torch 2.1 (October 2023) a checkpointed layer that runs again stops before its
        last module; Megatron's and DeepSpeed's own checkpointing never do. The H100 rows are of
        that month or later.
        """
        training, around = self.training, self.surroundings
        if not training.activation_checkpointing or self.row["gpu_type"] == "H100":
            return 0.0
        part = rank_training(training, around)
        shape = part.model
        down = (part.tokens, shape.intermediate_size, shape.hidden_size)
        one = matmul_s(down, around.device, precision=training.precision) / self.rates.matmul
        micro_steps = training.accumulation * bubble(training, around)
        return micro_steps * shape.num_hidden_layers * one


@cache
def published() -> tuple[Published, ...]:
    """Return every complete row."""
    with (DATA / FILE).open(encoding="utf-8") as lines:
        return tuple(
            _published(number, row)
            for number, row in enumerate(csv.DictReader(lines), start=2)
            if all(row[name] for name in NEEDED) and any(row[name] for name in SPEEDS)
        )


def _published(line: int, row: dict[str, str]) -> Published:
    gpus = int(row["gpus"])
    tensor, stages = int(row["tp"] or 1), int(row["pp"] or 1)
    ranks = gpus // tensor // stages
    shape = _shape(row)
    micro_batch = int(row["micro_batch"])
    accumulation = int(row["grad_accum"] or 0)
    if not accumulation:
        accumulation = max(int(row["global_batch"] or 0) // (ranks * micro_batch), 1)
    workload = Workload(
        model=shape,
        seq_len=int(row["seq_len"]),
        global_batch_size=ranks * accumulation * micro_batch,
        world_size=ranks,
        precision=row["precision"],
        optimizer={"type": "AdamW"},
        gradient_clipping=1.0,
    )
    settings = ModelSettings(
        activation_checkpointing=row["act_ckpt"] == "True",
        attn_implementation=_attention(row),
    )
    device = _device(row)
    return Published(
        line=line,
        row=row,
        training=read_training(_ds_config(row, accumulation), workload, settings),
        surroundings=SpeedSurroundings(
            device=device,
            local_ranks=gpus // int(row["nodes"]) if row["nodes"] else min(gpus, 8),
            links=Links.of_device(device, network=_network(row)),
            tensor_parallel=tensor,
            pipeline_stages=stages,
        ),
        rates=FSDP_RATES if "FSDP" in row["framework"] else RATES,
        tokens_per_s=gpus * _tokens_per_s_per_gpu(row, workload),
    )


def _tokens_per_s_per_gpu(row: dict[str, str], workload: Workload) -> float:
    """Return the speed, by the most direct of the numbers that a row has."""
    gpus, seq_len = int(row["gpus"]), int(row["seq_len"])
    if row["tokens_per_s_per_gpu"]:
        return float(row["tokens_per_s_per_gpu"])
    if row["samples_per_s"]:
        return float(row["samples_per_s"]) * seq_len / gpus
    if row["step_time_s"]:
        batch = int(row["global_batch"] or workload.global_batch_size)
        return batch * seq_len / gpus / float(row["step_time_s"])
    # Without recomputation: 6 operations a parameter and token.
    assert "recompute not counted" in row["notes"], row
    return float(row["tflops_per_gpu"]) * 1e12 / (6 * float(row["params"]))


def _shape(row: dict[str, str]) -> ModelShape:
    layers, hidden = int(row["layers"] or 0), int(row["hidden"] or 0)
    if not layers or not hidden:
        layers, hidden = _infer(float(row["params"]))
    return ModelShape(
        name=row["model"],
        model_type="opt",
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=max(hidden // 128, 1),
        num_key_value_heads=max(hidden // 128, 1),
        vocab_size=VOCABULARY,
        max_position_embeddings=int(row["seq_len"]),
        tie_word_embeddings=True,
        hf_config={},
    )


def _infer(params: float) -> tuple[int, int]:
    """Return layers and width: the nearest usual pair, stretched in layers to the parameters."""

    def error(pair: tuple[int, int]) -> float:
        layers, hidden = pair
        return abs(12 * layers * hidden**2 + VOCABULARY * hidden - params)

    _, hidden = min(SHAPES, key=error)
    return max(round((params - VOCABULARY * hidden) / (12 * hidden**2)), 1), hidden


def _device(row: dict[str, str]) -> Device:
    memory = row["gpu_mem_gb"]
    return find_device(f"{row['gpu_type']}-{memory}gb" if memory else row["gpu_type"])


def _attention(row: dict[str, str]) -> str:
    """Return what a framework computes attention with; Megatron fuses all but the products."""
    if "FSDP" in row["framework"]:
        return "flash_attention_2"
    return "eager"


def _gathers_one_by_one(row: dict[str, str]) -> bool:
    """Whether a row is from before DeepSpeed#1453 (autumn 2021): no coalescing, no overlap."""
    before = "before the PR" in row["notes"] or row["source"].endswith("gpt2.md")
    return before and row["zero_stage"] == "3"


def _network(row: dict[str, str]) -> str | None:
    """Return the network that a row names; None takes what such devices come with."""
    return "roce-100x4" if "400 Gbps between p4d nodes" in row["notes"] else None


def _ds_config(row: dict[str, str], accumulation: int) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": int(row["zero_stage"][0])}
    if _gathers_one_by_one(row):
        zero |= {
            "overlap_comm": False,
            "stage3_prefetch_bucket_size": 0,
            "stage3_allgather_sequential": True,
        }
    if "optimizer" in row["offload"] or "full" in row["offload"]:
        zero["offload_optimizer"] = {"device": "cpu"}
    if "param" in row["offload"] or "full" in row["offload"]:
        zero["offload_param"] = {"device": "cpu"}
    # Composer's default mixed precision reduces in fp32, unless a row is "pure bf16".
    in_fp32 = "FSDP" in row["framework"] and "pure bf16" not in row["notes"]
    return ({"communication_data_type": "fp32"} if in_fp32 else {}) | {
        "train_micro_batch_size_per_gpu": int(row["micro_batch"]),
        "gradient_accumulation_steps": accumulation,
        row["precision"]: {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": zero,
    }
