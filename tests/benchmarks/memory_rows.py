"""Measures the memory of jobs that no row of `tests/data` has, on one CUDA device.

``python -m tests.benchmarks.memory_rows --out rows.csv`` runs every row, each in a process of its
own that plays rank 0 of N under torch's fake process group, and writes one CSV line a row: the
columns of `h200_memory.csv` first, then what is needed to rebuild the job. It ends with the memory
model's error on each row and by topic, which ``--table rows.csv`` prints again without a device.

``--caps`` runs a few rows under a limit of the allocator a little above and a little below what
the model predicts, and prints whether they fitted; ``--with-caps`` does so after the rows.

``--device cpu`` runs the same rows with tiny models, to debug this script: sizes mean nothing then.

A row's job is in three columns, from which `read_job` rebuilds everything the model reads:
``ds_config`` and ``hf_config`` (JSON) and ``frozen`` with ``trainable_parameters``; the numbers in
the other columns say the same for people and for the older rows' reader.
"""

import argparse
import contextlib
import csv
import faulthandler
import json
import os
import re
import resource
import select
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

GIB = 2**30
NUM_STEPS = 3
"""Peaks need two: ZeRO 3 prefetches from its second pass, moments join after the first step."""
CAP_FACTORS = (1.04, 0.96)
CAPPED = (
    "fp16-z2-n8",
    "acc32-z1-n8",
    "tied-z2-n8",
    "gpt2l-z3-n8",
    "moe-z2-n8",
    "eager-z2-n8",
)
"""Rows that `--caps` runs unless told which: large enough for 4 % to be more than noise."""

# The columns of tests/data/h200_memory.csv, in its order.
_OLD_COLUMNS = (
    "row_id",
    "shape",
    "params",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "world_size",
    "emulated",
    "zero_stage",
    "micro_batch",
    "seq_len",
    "grad_accum",
    "activation_checkpointing",
    "offload",
    "zero_extra",
    "init_allocated_gib",
    "init_peak_reserved_gib",
    "after_first_backward_allocated_gib",
    "peak_allocated_gib",
    "peak_reserved_gib",
    "alloc_retries",
    "driver_used_gib",
    "host_rss_gib",
    "step_s",
    "status",
)
_NEW_COLUMNS = (
    "topic",
    "model_type",
    "precision",
    "grad_accum_dtype",
    "optimizer",
    "attn_implementation",
    "tie_word_embeddings",
    "num_experts",
    "experts_per_token",
    "frozen",
    "trainable_parameters",
    "devices_per_node",
    "hf_config",
    "ds_config",
    "outside_gib",
    "outside_at_start_gib",
    "row_s",
    "versions",
    "message",
)
COLUMNS = _OLD_COLUMNS + _NEW_COLUMNS

_LLAMA: dict[str, Any] = {"model_type": "llama", "tie_word_embeddings": False}
_GPT2: dict[str, Any] = {"model_type": "gpt2", "vocab_size": 50_257, "n_positions": 1_024}
_NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def _sizes(
    hidden: int, intermediate: int, layers: int, heads: int, key_value_heads: int | None = None
) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads or heads,
        "vocab_size": 32_000,
        "max_position_embeddings": 4_096,
    }


MODELS: Mapping[str, dict[str, Any]] = {
    "350m": _LLAMA | _sizes(1_024, 2_736, 24, 16),
    "1b": _LLAMA | _sizes(2_048, 5_504, 20, 16),
    "1b-tied": _LLAMA
    | _sizes(2_048, 8_192, 16, 32, 8)
    | {"vocab_size": 128_256, "tie_word_embeddings": True},
    "3b-tied": _LLAMA
    | _sizes(3_072, 8_192, 28, 24, 8)
    | {"vocab_size": 128_256, "tie_word_embeddings": True},
    "gpt2-medium": _GPT2 | _NO_DROPOUT | {"n_embd": 1_024, "n_layer": 24, "n_head": 16},
    "gpt2-large": _GPT2 | _NO_DROPOUT | {"n_embd": 1_280, "n_layer": 36, "n_head": 20},
    "gpt2-large-dropout": _GPT2 | {"n_embd": 1_280, "n_layer": 36, "n_head": 20},
    "opt-1.3b": {
        "model_type": "opt",
        "hidden_size": 2_048,
        "word_embed_proj_dim": 2_048,
        "ffn_dim": 8_192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "vocab_size": 50_272,
        "max_position_embeddings": 2_048,
        "dropout": 0.0,
        # With one, transformers writes into a row of the sharded, so empty, embedding.
        "pad_token_id": None,
        "tie_word_embeddings": True,
    },
    "mixtral-small": _sizes(1_024, 3_584, 8, 16, 8)
    | {"model_type": "mixtral", "tie_word_embeddings": False}
    | {"num_local_experts": 8, "num_experts_per_tok": 2},
}
"""Hugging Face configs, whole: 0.35 to 3.2 billion parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One row: a job, as short as it can be said."""

    name: str
    topic: str
    model: str = "1b"
    ranks: int = 8
    stage: int = 2
    micro_batch: int = 2
    seq_len: int = 2_048
    accumulation: int = 1
    checkpointing: bool = False
    precision: str = "bf16"
    optimizer: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "AdamW", "params": {"lr": 1e-4}}
    )
    attention: str = "sdpa"
    offload: bool = False
    """Of the optimizer, to the CPU."""
    zero: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of `zero_optimization`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the ds_config."""
    adapter_rank: int = 0
    """Freeze the model and add low-rank adapters beside q_proj and v_proj."""
    trained_layers: int = 0
    """Freeze all but this many layers at the end."""
    devices_per_node: int = 8
    """What ZeRO++'s quantized gradients take for a node."""

    @property
    def frozen(self) -> str:
        """What is frozen: nothing, the base under adapters, or what lies below the top."""
        return "adapters" if self.adapter_rank else "on_top" if self.trained_layers else ""

    @property
    def ds_config(self) -> dict[str, Any]:
        """The config as DeepSpeed gets it."""
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": self.micro_batch,
            "gradient_accumulation_steps": self.accumulation,
            "gradient_clipping": 1.0,
            "optimizer": dict(self.optimizer),
            "zero_optimization": {"stage": self.stage} | dict(self.zero),
        }
        if self.precision == "bf16":
            config["bf16"] = {"enabled": True}
        if self.precision == "fp16":
            # A fixed scale: steps skipped while a dynamic one settles would not allocate moments.
            config["fp16"] = {"enabled": True, "loss_scale": 128}
        if self.offload:
            config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
        return config | dict(self.extra)

    def tiny(self) -> "Spec":
        """Return the row with a smaller batch, for CPUs; `tiny_config` shrinks its model."""
        optimizer = dict(self.optimizer)
        if optimizer["type"] == "AdamW":
            optimizer = {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}
        elif optimizer["type"] == "Lion":
            optimizer = {"type": "SGD", "params": {"lr": 1e-4}}  # Lion's kernel is CUDA's
        extra = dict(self.extra)
        if optimizer["type"] == "SGD":
            extra["zero_allow_untested_optimizer"] = True
        zero = {"reduce_bucket_size": 100_000} | dict(self.zero)
        changes = {"optimizer": optimizer, "extra": extra, "zero": zero, "micro_batch": 1}
        values = {name: getattr(self, name) for name in self.__slots__}
        values |= changes | {"seq_len": 32, "trained_layers": min(self.trained_layers, 1)}
        if self.precision == "fp16":
            values["precision"] = "bf16"  # DeepSpeed refuses fp16 on CPUs
        return Spec(**values)


def tiny_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config of the same family with two layers of 64."""
    small = {
        "hidden_size": 64,
        "n_embd": 64,
        "word_embed_proj_dim": 64,
        "intermediate_size": 128,
        "ffn_dim": 128,
        "num_hidden_layers": 2,
        "n_layer": 2,
        "num_attention_heads": 4,
        "n_head": 4,
        "num_key_value_heads": 4,
        "vocab_size": 512,
    }
    return {key: small.get(key, value) for key, value in config.items()}


_FP32_SUMS = {"data_types": {"grad_accum_dtype": "fp32"}}
_UNTESTED = {"zero_allow_untested_optimizer": True}
_SGD: dict[str, Any] = {"type": "SGD", "params": {"lr": 1e-3}}
_MOMENTUM: dict[str, Any] = {"type": "SGD", "params": {"lr": 1e-3, "momentum": 0.9}}
_LION: dict[str, Any] = {"type": "Lion", "params": {"lr": 1e-5}}
# Little of a batch: weights, gradients, buckets and states are then what the peak is made of.
_FEW: dict[str, Any] = {"micro_batch": 1, "seq_len": 512}
_HPZ = {"zero_hpz_partition_size": 8}
_QWZ = {"zero_quantized_weights": True}
_QGZ = {"zero_quantized_gradients": True}


def _rows(topic: str, **rows: dict[str, Any]) -> tuple[Spec, ...]:
    return tuple(
        Spec(name=name.replace("_", "-"), topic=topic, **values) for name, values in rows.items()
    )


def _in_rounds(rows: Sequence[Spec]) -> tuple[Spec, ...]:
    """Order rows so that a time limit cuts off second looks, and what may not run at all."""
    of_topic: dict[str, int] = defaultdict(int)
    keys = {}
    for row in rows:
        keys[row.name] = (row.topic == "zero++", of_topic[row.topic] // 2)
        of_topic[row.topic] += 1
    return tuple(sorted(rows, key=lambda row: keys[row.name]))


_BY_TOPIC: tuple[Spec, ...] = (
    *_rows(
        "fp16",
        fp16_z2_n8={"precision": "fp16", "micro_batch": 4},
        fp16_z3_n8=_FEW | {"precision": "fp16", "stage": 3},
        fp16_z1_n2=_FEW | {"precision": "fp16", "stage": 1, "ranks": 2},
        fp16_z0_n8={"precision": "fp16", "stage": 0, "model": "350m"},
    ),
    *_rows(
        "fp32 sums",
        acc32_z1_n8={"stage": 1, "extra": _FP32_SUMS, "accumulation": 2, "micro_batch": 4},
        acc32_z2_n8=_FEW | {"stage": 2, "extra": _FP32_SUMS, "accumulation": 2},
        acc32_z3_n8=_FEW | {"stage": 3, "extra": _FP32_SUMS, "accumulation": 2},
        acc32_z1_n64={"stage": 1, "extra": _FP32_SUMS, "ranks": 64},
        acc32_z2_n2=_FEW | {"stage": 2, "extra": _FP32_SUMS, "ranks": 2},
    ),
    *_rows(
        "tied embeddings",
        tied_z2_n8={"model": "1b-tied"},
        tied_z1_n2=_FEW | {"model": "1b-tied", "stage": 1, "ranks": 2},
        tied_z3_n64={"model": "3b-tied", "stage": 3, "ranks": 64, "checkpointing": True},
    ),
    *_rows(
        "accumulation with offload",
        acc2_offload_z2_n8={"accumulation": 2, "offload": True},
        acc2_offload_z3_n8=_FEW | {"accumulation": 2, "offload": True, "stage": 3},
        acc2_offload_z1_n64={"accumulation": 2, "offload": True, "stage": 1, "ranks": 64},
    ),
    *_rows(
        "gpt2",
        gpt2m_z0_n1={"model": "gpt2-medium", "stage": 0, "ranks": 1, "seq_len": 1_024},
        gpt2m_z2_n8_eager={
            "model": "gpt2-medium",
            "attention": "eager",
            "micro_batch": 8,
            "seq_len": 1_024,
        },
        gpt2m_z1_n8_eager={
            "model": "gpt2-medium",
            "attention": "eager",
            "stage": 1,
            "micro_batch": 4,
            "seq_len": 1_024,
        },
        gpt2l_z1_n2=_FEW | {"model": "gpt2-large", "stage": 1, "ranks": 2},
        gpt2l_z3_n8={"model": "gpt2-large", "stage": 3, "micro_batch": 8, "seq_len": 1_024},
        gpt2l_z2_n8_dropout={"model": "gpt2-large-dropout", "micro_batch": 4, "seq_len": 1_024},
    ),
    *_rows(
        "mixture of experts",
        moe_z2_n8={"model": "mixtral-small", "micro_batch": 4},
        moe_z1_n2=_FEW | {"model": "mixtral-small", "stage": 1, "ranks": 2},
        moe_z3_n8=_FEW | {"model": "mixtral-small", "stage": 3},
    ),
    *_rows(
        "frozen parameters",
        lora_z2_n8=_FEW | {"adapter_rank": 16},
        lora_z3_n8_ckpt={"adapter_rank": 16, "stage": 3, "checkpointing": True},
        on_top_z2_n8={"trained_layers": 4},
        on_top_z3_n8=_FEW | {"trained_layers": 4, "stage": 3},
    ),
    *_rows(
        "stage 0",
        z0_n1={"stage": 0, "ranks": 1, "model": "350m"},
        z0_n8={"stage": 0},
    ),
    *_rows(
        "fp32",
        fp32_z0_n1={"stage": 0, "ranks": 1, "model": "350m", "precision": "fp32"},
        fp32_z2_n8=_FEW | {"model": "350m", "precision": "fp32"},
        fp32_z3_n8={"stage": 3, "model": "350m", "precision": "fp32"},
    ),
    *_rows(
        "eager attention",
        eager_z2_n8={"attention": "eager"},
        eager_z3_n8_ckpt={
            "attention": "eager",
            "stage": 3,
            "checkpointing": True,
            "model": "1b-tied",
        },
    ),
    *_rows(
        "opt",
        opt_z2_n8={"model": "opt-1.3b"},
        opt_z3_n8_ckpt={"model": "opt-1.3b", "stage": 3, "checkpointing": True, "micro_batch": 8},
    ),
    *_rows(
        "overlap off at stage 3",
        z3_no_overlap_n8={"stage": 3, "zero": {"overlap_comm": False}},
        z3_no_overlap_n64=_FEW | {"stage": 3, "zero": {"overlap_comm": False}, "ranks": 64},
    ),
    *_rows(
        "contiguous_gradients false",
        z2_scattered_n8=_FEW | {"zero": {"contiguous_gradients": False}},
        z1_scattered_n8=_FEW | {"stage": 1, "zero": {"contiguous_gradients": False}},
    ),
    *_rows(
        "reduce_scatter false",
        z2_all_reduce_n8=_FEW | {"zero": {"reduce_scatter": False}},
        z1_all_reduce_n8=_FEW | {"stage": 1, "zero": {"reduce_scatter": False}},
    ),
    *_rows(
        "other optimizers",
        sgd_z1_n8=_FEW | {"stage": 1, "optimizer": _SGD, "extra": _UNTESTED},
        momentum_z2_n2=_FEW | {"optimizer": _MOMENTUM, "extra": _UNTESTED, "ranks": 2},
        lion_z2_n8=_FEW | {"optimizer": _LION},
        lion_z3_n2=_FEW | {"optimizer": _LION, "stage": 3, "ranks": 2},
    ),
    *_rows(
        "zero++",
        hpz_z3_n64=_FEW | {"stage": 3, "ranks": 64, "zero": _HPZ},
        qwz_z3_n8=_FEW | {"stage": 3, "zero": _QWZ},
        qgz_z3_n16=_FEW | {"stage": 3, "ranks": 16, "zero": _QGZ},
    ),
)
ROWS = _in_rounds(_BY_TOPIC)


def say(text: str) -> None:
    """Print at once: the machine may stop at any time."""
    print(text, flush=True)


# ---------------------------------------------------------------------- what one process measures
class Meter(Protocol):
    """The device's memory, in bytes."""

    name: str

    def allocated(self) -> int: ...
    def peak_allocated(self) -> int: ...
    def reserved(self) -> int: ...
    def peak_reserved(self) -> int: ...
    def reset(self) -> None: ...
    def num_retries(self) -> int: ...
    def driver_used(self) -> int: ...
    def wait(self) -> None: ...
    def cap(self, num_bytes: int) -> None: ...


class CudaMeter:
    """The first visible CUDA device."""

    name = "cuda:0"

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda
        self._cuda.set_device(0)
        # The row before has ended, but its memory may come back a little later.
        deadline = time.monotonic() + 5
        while self.driver_used() > 3 * GIB and time.monotonic() < deadline:
            time.sleep(0.1)

    def allocated(self) -> int:
        return int(self._cuda.memory_allocated(0))

    def peak_allocated(self) -> int:
        return int(self._cuda.max_memory_allocated(0))

    def reserved(self) -> int:
        return int(self._cuda.memory_reserved(0))

    def peak_reserved(self) -> int:
        return int(self._cuda.max_memory_reserved(0))

    def reset(self) -> None:
        self._cuda.reset_peak_memory_stats(0)

    def num_retries(self) -> int:
        return int(self._cuda.memory_stats(0).get("num_alloc_retries", 0))

    def driver_used(self) -> int:
        free, total = self._cuda.mem_get_info(0)
        return int(total - free)

    def wait(self) -> None:
        self._cuda.synchronize(0)

    def cap(self, num_bytes: int) -> None:
        total = self._cuda.mem_get_info(0)[1]
        self._cuda.set_per_process_memory_fraction(min(max(num_bytes / total, 0.0), 1.0), 0)


class CpuMeter:
    """Nothing to measure: for debugging this script."""

    name = "cpu"

    def allocated(self) -> int:
        return 0

    peak_allocated = reserved = peak_reserved = num_retries = driver_used = allocated

    def reset(self) -> None:
        """Nothing to reset."""

    wait = reset

    def cap(self, num_bytes: int) -> None:
        """No limit is set."""


Report = Callable[[Mapping[str, Any]], None]


def measure(spec: Spec, config: Mapping[str, Any], meter: Meter, report: Report) -> None:
    """Train a few steps of a row's job, reporting columns as soon as they are known."""
    import deepspeed
    import torch

    report({"outside_at_start_gib": _gib(meter.driver_used() - meter.reserved())})
    _join(spec)
    model = _build(spec, config, meter.name)
    counts = [getattr(p, "ds_numel", p.numel()) for p in model.parameters()]
    trained = [p for p in model.parameters() if p.requires_grad]
    trainable = sum(getattr(p, "ds_numel", p.numel()) for p in trained)
    report({"params": sum(counts), "trainable_parameters": trainable})
    engine = deepspeed.initialize(model=model, model_parameters=trained, config=spec.ds_config)[0]
    del trained
    _never_skip(engine.optimizer)
    meter.wait()
    report(
        {
            "init_allocated_gib": _gib(meter.allocated()),
            "init_peak_reserved_gib": _gib(meter.peak_reserved()),
        }
    )
    meter.reset()
    vocab = int(config["vocab_size"])
    shape = spec.micro_batch, spec.seq_len
    tokens = torch.randint(0, vocab, shape, device=meter.name)
    step_s = []
    for step in range(NUM_STEPS):
        start = time.perf_counter()
        for micro_step in range(spec.accumulation):
            loss = engine(input_ids=tokens, labels=tokens, use_cache=False).loss
            engine.backward(loss)
            del loss
            if step == micro_step == 0:
                meter.wait()
                report({"after_first_backward_allocated_gib": _gib(meter.allocated())})
            engine.step()
        meter.wait()
        step_s.append(time.perf_counter() - start)
        report(_peaks(meter) | {"step_s": " ".join(f"{s:.4f}" for s in step_s)})
    skipped = int(getattr(engine, "skipped_steps", 0))
    note = f"{skipped} steps skipped" if skipped else ""
    report({"status": "ok", "message": note})


def _peaks(meter: Meter) -> dict[str, Any]:
    used = meter.driver_used()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "peak_allocated_gib": _gib(meter.peak_allocated()),
        "peak_reserved_gib": _gib(meter.peak_reserved()),
        "alloc_retries": meter.num_retries(),
        "driver_used_gib": _gib(used),
        "outside_gib": _gib(used - meter.reserved()),
        "host_rss_gib": f"{resident / GIB:.2f}",
    }


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.3f}"


def _join(spec: Spec) -> None:
    """Become rank 0 of a world whose other ranks do not exist."""
    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator
    from torch.testing._internal.distributed.fake_pg import FakeStore

    # It would compile for a minute, and training never calls it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=spec.ranks)
    deepspeed.init_distributed()
    if "zero_quantized_gradients" in spec.zero:
        # Its groups are cut by the devices of this node.
        get_accelerator().device_count = lambda: spec.devices_per_node


def _build(spec: Spec, config: Mapping[str, Any], device: str) -> Any:
    """Return the model in training mode, sharded as it is built at stage 3."""
    import deepspeed
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    values = dict(config)
    hf_config = AutoConfig.for_model(values.pop("model_type"), **values)
    hf_config.use_cache = False
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    dtype = dtypes[spec.precision]
    torch.manual_seed(0)
    with contextlib.ExitStack() as stack:
        if spec.stage == 3:
            stack.enter_context(deepspeed.zero.Init(config_dict_or_path=spec.ds_config))
        stack.enter_context(torch.device(device))
        model = AutoModelForCausalLM.from_config(
            hf_config, attn_implementation=spec.attention, dtype=dtype
        )
        if spec.adapter_rank:
            model.requires_grad_(False)
            _add_adapters(model, spec.adapter_rank, dtype)
    if spec.trained_layers:
        model.requires_grad_(False)
        for layer in model.model.layers[-spec.trained_layers :]:
            layer.requires_grad_(True)
    if spec.checkpointing:
        model.gradient_checkpointing_enable()
    return model.train()


def _add_adapters(model: Any, rank: int, dtype: Any) -> None:
    """Put a low-rank pair beside every q_proj and v_proj, as LoRA without dropout."""
    from torch import nn

    class Adapted(nn.Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base = base
            self.down = nn.Linear(base.in_features, rank, bias=False, dtype=dtype)
            self.up = nn.Linear(rank, base.out_features, bias=False, dtype=dtype)

        def forward(self, inputs: Any) -> Any:
            return self.base(inputs) + self.up(self.down(inputs)) * 2.0

    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, Adapted(getattr(layer.self_attn, name)))


def _never_skip(optimizer: Any) -> None:
    """Take every step: what was not communicated may overflow, and a skipped step allocates less.

    The check itself runs, since it takes memory too.
    """
    check = getattr(optimizer, "has_overflow", None)
    if check is None:
        return

    def checked(*args: Any, **kwargs: Any) -> bool:
        check(*args, **kwargs)
        return False

    optimizer.has_overflow = checked


# ---------------------------------------------------------------------- one process a row
class Runner:
    """Forks a process for each row from a parent that has imported all and touched no device."""

    def __init__(self, device: str, *, timeout_s: float, gpu_type: str) -> None:
        self.device = device
        self.timeout_s = timeout_s
        self.gpu_type = gpu_type
        self.logs = Path(tempfile.mkdtemp(prefix="memory-rows-"))
        self.waited_s = 0.0
        """For kernels to be built, while no row ran."""
        self._builds: dict[str, int] = {}
        self._broken: set[str] = set()

    def prepare(self, rows: Sequence[Spec]) -> None:
        """Import what the rows need, and build their optimizers' kernels."""
        start = time.monotonic()
        _preload(self.device, sorted({MODELS[row.model]["model_type"] for row in rows}))
        threads = len(list(Path("/proc/self/task").iterdir()))
        say(f"imported in {time.monotonic() - start:.1f} s; {threads} thread(s); logs: {self.logs}")
        if threads != 1:
            say("warning: more than one thread; forked rows may hang, and are then ended")
        if self.device == "cuda":
            self._start_builds(rows)

    def _start_builds(self, rows: Sequence[Spec]) -> None:
        from autotune.trial.build_locks import remove_stale_locks

        remove_stale_locks()
        needed = {name for row in rows for name in _ops(row)}
        for name in sorted(needed):
            log = self.logs / f"build-{name}.log"
            self._builds[name] = self._fork(log, lambda name=name: _build_op(name))  # type: ignore[misc]

    def _wait_for_ops(self, row: Spec) -> None:
        """Wait for the kernels that a row needs; others go on building beside it."""
        for name in _ops(row):
            pid = self._builds.pop(name, 0)
            if not pid:
                continue
            start = time.monotonic()
            status = _wait(pid, time.monotonic() + 300)
            self.waited_s += time.monotonic() - start
            say(f"{name}: built (exit {status}) after another {time.monotonic() - start:.1f} s")
            if status:
                self._broken.add(name)
                say(_tail(self.logs / f"build-{name}.log", 30))

    def run(self, spec: Spec, *, cap_bytes: int | None = None) -> dict[str, Any]:
        """Run one row to its end, or to its time limit, and return its columns."""
        config = MODELS[spec.model]
        if self.device == "cpu":
            spec, config = spec.tiny(), tiny_config(config)
        if self.device == "cuda":
            self._wait_for_ops(spec)
        line = describe(spec, config)
        if self._broken.intersection(_ops(spec)):
            # The row would try to build it again, until its time is up.
            return line | {"status": "error", "message": "its kernel could not be built"}
        start = time.monotonic()
        read_end, write_end = os.pipe()
        log = self.logs / f"{spec.name}{'-capped' if cap_bytes is not None else ''}.log"

        def work() -> None:
            os.close(read_end)
            self._measure(spec, config, cap_bytes, write_end)

        pid = self._fork(log, work)
        os.close(write_end)
        deadline = start + self.timeout_s
        for update in _updates(read_end, deadline):
            line |= update
        os.close(read_end)
        status = _wait(pid, min(deadline, time.monotonic() + 5) if line["status"] else deadline)
        _kill_group(pid)
        if not line["status"]:
            late = time.monotonic() >= deadline
            reason = f"took over {self.timeout_s:.0f} s" if late else f"ended with {status}"
            line |= {"status": "error", "message": reason}
        line["row_s"] = f"{time.monotonic() - start:.1f}"
        if line["status"] == "error":
            sys.stderr.write(f"{spec.name}: {line['message']}\n{_tail(log, 25)}\n")
            sys.stderr.flush()
        return line

    def _measure(
        self, spec: Spec, config: Mapping[str, Any], cap_bytes: int | None, write_end: int
    ) -> None:
        def report(values: Mapping[str, Any]) -> None:
            os.write(write_end, (json.dumps(values) + "\n").encode())

        os.environ.update(
            {
                "RANK": "0",
                "LOCAL_RANK": "0",
                "WORLD_SIZE": str(spec.ranks),
                "LOCAL_SIZE": "1",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29500",  # never opened: the fake group has no rendezvous
            }
        )
        import torch

        faulthandler.enable()
        torch.set_num_threads(min(os.cpu_count() or 1, 8) if self.device == "cuda" else 1)
        try:
            meter: Meter = CudaMeter() if self.device == "cuda" else CpuMeter()
            if cap_bytes is not None:
                meter.cap(cap_bytes)
            measure(spec, config, meter, report)
        except BaseException as error:  # noqa: BLE001  whatever it is, the other rows go on
            traceback.print_exc()
            text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            ran_out = isinstance(error, torch.cuda.OutOfMemoryError) or (
                "out of memory" in text.lower()
            )
            report({"status": "oom" if ran_out else "error", "message": text})

    def _fork(self, log: Path, work: Callable[[], None]) -> int:
        """Run `work` in a child that leads a session of its own and writes to `log`."""
        from autotune.trial import ending

        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.setsid()
            ending.die_with_parent(parent, signal.SIGKILL)
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            for standard in (1, 2):
                os.dup2(file, standard)
            work()
            code = 0
        except BaseException:  # noqa: BLE001  a child must not go on as its parent
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _preload(device: str, model_types: Sequence[str]) -> None:
    from autotune.trial.preload import preload

    for model_type in model_types:
        preload(model_type, device_kind=device)


def _ops(row: Spec) -> tuple[str, ...]:
    """Return the DeepSpeed kernels that a row runs."""
    kind = row.optimizer["type"]
    found = []
    if kind == "AdamW":
        found.append("CPUAdamBuilder" if row.offload else "FusedAdamBuilder")
    if kind == "Lion":
        found.append("FusedLionBuilder")
    if any(key.startswith("zero_quantized") for key in row.zero):
        found.append("QuantizerBuilder")
    return tuple(found)


def _build_op(name: str) -> None:
    start = time.monotonic()
    from deepspeed.ops import op_builder

    getattr(op_builder, name)().load()
    say(f"{name}: {time.monotonic() - start:.1f} s")


def _updates(fd: int, deadline: float) -> Iterator[dict[str, Any]]:
    """Yield what a child reports until it closes its end, says its status, or time is up."""
    waiting = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([fd], [], [], left)[0]:
            return
        chunk = os.read(fd, 1 << 16)
        if not chunk:
            return
        *lines, waiting = (waiting + chunk).split(b"\n")
        for text in lines:
            update: dict[str, Any] = json.loads(text)
            yield update
            if "status" in update:
                return


def _wait(pid: int, deadline: float) -> int:
    """Wait for a child, ending it at the deadline; returns its exit code."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            _kill_group(pid)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(0.02)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _tail(path: Path, num_lines: int) -> str:
    if not path.is_file():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-num_lines:])


# ---------------------------------------------------------------------- rows of the CSV
def describe(spec: Spec, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's line before it has run: the job, and nothing measured."""
    import deepspeed
    import torch
    import transformers

    heads = config.get("num_attention_heads", config.get("n_head"))
    hidden = config.get("hidden_size", config.get("n_embd"))
    versions = {module.__name__: module.__version__ for module in (torch, transformers, deepspeed)}
    return dict.fromkeys(COLUMNS, "") | {
        "row_id": spec.name,
        "shape": spec.model,
        "hidden_size": hidden,
        "intermediate_size": config.get("intermediate_size", config.get("ffn_dim", 4 * hidden)),
        "num_hidden_layers": config.get("num_hidden_layers", config.get("n_layer")),
        "num_attention_heads": heads,
        "num_key_value_heads": config.get("num_key_value_heads", heads),
        "vocab_size": config["vocab_size"],
        "world_size": spec.ranks,
        "emulated": 1,
        "zero_stage": spec.stage,
        "micro_batch": spec.micro_batch,
        "seq_len": spec.seq_len,
        "grad_accum": spec.accumulation,
        "activation_checkpointing": int(spec.checkpointing),
        "offload": "optimizer_cpu" if spec.offload else "none",
        "zero_extra": json.dumps(dict(spec.zero)) if spec.zero else "",
        "topic": spec.topic,
        "model_type": config["model_type"],
        "precision": spec.precision,
        "grad_accum_dtype": spec.extra.get("data_types", {}).get("grad_accum_dtype", ""),
        "optimizer": json.dumps(spec.optimizer),
        "attn_implementation": spec.attention,
        "tie_word_embeddings": int(
            config.get("tie_word_embeddings", config["model_type"] == "gpt2")
        ),
        "num_experts": config.get("num_local_experts", ""),
        "experts_per_token": config.get("num_experts_per_tok", ""),
        "frozen": spec.frozen,
        "devices_per_node": spec.devices_per_node,
        "hf_config": json.dumps(config),
        "ds_config": json.dumps(spec.ds_config),
        "versions": json.dumps(versions),
    }


def read_job(line: Mapping[str, Any]) -> Any:
    """Rebuild what the memory model reads, from a line's columns alone."""
    from autotune.model_shape import shape_from_hf_config
    from autotune.predict.training import ModelSettings, read_training
    from autotune.workload import Workload

    config, ds_config = json.loads(line["hf_config"]), json.loads(line["ds_config"])
    ranks, name = int(line["world_size"]), str(line["row_id"])
    sequences = int(line["micro_batch"]) * int(line["grad_accum"])
    workload = Workload(
        model=shape_from_hf_config(config, name=str(line["shape"]), where=name),
        seq_len=int(line["seq_len"]),
        global_batch_size=ranks * sequences,
        world_size=ranks,
        precision=str(line["precision"]),
        optimizer=ds_config["optimizer"],
        gradient_clipping=1.0,
    )
    trainable = int(line["trainable_parameters"]) if line["frozen"] else None
    settings = ModelSettings(
        activation_checkpointing=str(line["activation_checkpointing"]) == "1",
        attn_implementation=str(line["attn_implementation"]),
        trainable_parameters=trainable,
        trained_on_top=line["frozen"] == "on_top",
    )
    return read_training(ds_config, workload, settings)


def predict(line: Mapping[str, Any], gpu_type: str) -> Any:
    """Return the model's bill for a line's job."""
    from autotune.hardware import find_device
    from autotune.predict.memory.predict import Surroundings, predict_memory

    surroundings = Surroundings(device=find_device(gpu_type), emulated=True)
    return predict_memory(read_job(line), surroundings)


# ---------------------------------------------------------------------- the three modes
def run_rows(runner: Runner, rows: Sequence[Spec], out: Path, budget_s: float) -> None:
    """Run rows one after the other; the CSV is complete after each."""
    start = time.monotonic()
    lines = []
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = _writer(file, COLUMNS)
        for number, row in enumerate(rows, 1):
            elapsed = time.monotonic() - start - runner.waited_s
            if elapsed > budget_s:
                left = ", ".join(row.name for row in rows[number - 1 :])
                say(f"{elapsed:.0f} s are over; not run: {left}")
                break
            line = runner.run(row)
            lines.append(line)
            writer.writerow(line)
            file.flush()
            say(
                f"{number:3}/{len(rows)} {row.name:24} {line['status']:6}"
                f" init {line['init_allocated_gib']:>8} peak {line['peak_allocated_gib']:>8}"
                f" reserved {line['peak_reserved_gib']:>8} GiB  {line['row_s']:>5} s"
                f"  {line['message']}"
            )
    say(f"{len(lines)} rows in {time.monotonic() - start:.0f} s: {out}")
    print_table(lines, runner.gpu_type)


def _writer(file: TextIO, columns: Sequence[str]) -> "csv.DictWriter[str]":
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    file.flush()
    return writer


def print_table(lines: Sequence[Mapping[str, Any]], gpu_type: str) -> None:
    """Print the model's error on each row, and by topic."""
    errors: dict[str, list[float]] = defaultdict(list)
    say(
        f"\n{'row':24}{'predicted':>10}{'measured':>10}{'error':>9}{'init':>9}{'reserved':>10}"
        f"{'host':>9}  at the peak"
    )
    for line in lines:
        try:
            bill = predict(line, gpu_type)
        except Exception as error:  # noqa: BLE001  the model may be absent, or refuse a row
            say(f"{line['row_id']:24} not predicted: {type(error).__name__}: {error}")
            continue
        device = bill.device
        error_of = {
            column: _error(predicted, line[column])
            for column, predicted in (
                ("peak_allocated_gib", device.peak_allocated_bytes),
                ("init_allocated_gib", device.init_allocated_bytes),
                ("peak_reserved_gib", device.peak_reserved_bytes),
                ("host_rss_gib", bill.host.rank_bytes),
            )
        }
        peak = error_of["peak_allocated_gib"]
        complete = line["status"] == "ok"
        say(
            f"{line['row_id']:24}{device.peak_allocated_bytes / GIB:10.3f}"
            f"{line['peak_allocated_gib']:>10}{_percent(peak):>9}"
            f"{_percent(error_of['init_allocated_gib']):>9}"
            f"{_percent(error_of['peak_reserved_gib']):>10}{_percent(error_of['host_rss_gib']):>9}"
            f"  {device.part} {device.detail}{'' if complete else '  ' + line['status']}"
        )
        if peak is not None and complete:
            errors[str(line["topic"])].append(peak)
    say(f"\n{'topic':28}{'rows':>5}{'mean |e|':>10}{'lowest':>9}{'highest':>9}")
    for topic, found in errors.items():
        _summary(topic, found)
    if errors:
        _summary("all", [error for found in errors.values() for error in found])


def _summary(topic: str, errors: Sequence[float]) -> None:
    mean = statistics.fmean(map(abs, errors))
    say(
        f"{topic:28}{len(errors):5}{_percent(mean):>10}{_percent(min(errors)):>9}"
        f"{_percent(max(errors)):>9}"
    )


def _error(predicted_bytes: int | None, measured_gib: Any) -> float | None:
    """Return the relative error; negative is too low."""
    measured = float(measured_gib or 0)
    if predicted_bytes is None or not measured:
        return None
    return predicted_bytes / GIB / measured - 1


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:+.2%}"


_CAP_COLUMNS = (
    "row_id",
    "factor",
    "predicted_gib",
    "outside_gib",
    "ceiling_gib",
    "allocator_cap_gib",
    "expected",
    "status",
    "as_predicted",
    "peak_allocated_gib",
    "peak_reserved_gib",
    "alloc_retries",
    "row_s",
    "message",
)


def run_caps(runner: Runner, rows: Sequence[Spec], out: Path) -> None:
    """Run rows under limits around what the model says they need."""
    num_right = num_run = 0
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = _writer(file, _CAP_COLUMNS)
        for row in rows:
            job = describe(row, MODELS[row.model])
            try:
                device = predict(job, runner.gpu_type).device
            except Exception as error:  # noqa: BLE001  the model may be absent, or refuse a row
                say(f"{row.name}: not predicted: {type(error).__name__}: {error}")
                continue
            needed = device.peak_allocated_bytes + device.outside_bytes
            for factor in CAP_FACTORS:
                ceiling = round(needed * factor)
                cap = ceiling - device.outside_bytes
                line = runner.run(row, cap_bytes=cap)
                expected = "ok" if factor > 1 else "oom"
                right = line["status"] == expected
                num_right, num_run = num_right + right, num_run + 1
                found = {key: line[key] for key in _CAP_COLUMNS if key in line} | {
                    "factor": factor,
                    "predicted_gib": _gib(device.peak_allocated_bytes),
                    "outside_gib": _gib(device.outside_bytes),
                    "ceiling_gib": _gib(ceiling),
                    "allocator_cap_gib": _gib(cap),
                    "expected": expected,
                    "as_predicted": int(right),
                }
                writer.writerow(found)
                file.flush()
                say(
                    f"cap {factor:.2f} {row.name:24} predicted {found['predicted_gib']:>8}"
                    f" allocator's limit {found['allocator_cap_gib']:>8}"
                    f" peak {line['peak_allocated_gib']:>8} GiB, {line['alloc_retries'] or 0}"
                    f" retries: {line['status']:6} {'as predicted' if right else 'NOT predicted'}"
                    f"  {line['row_s']:>5} s  {str(line['message'])[:120]}"
                )
    say(f"{num_right} of {num_run} verdicts right under real limits: {out}")


def _choose(names: str, default: Sequence[str]) -> tuple[Spec, ...]:
    known = {row.name: row for row in ROWS}
    wanted = [name for name in names.split(",") if name] or list(default)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"no such row: {', '.join(unknown)}; rows: {', '.join(known)}")
    return tuple(known[name] for name in wanted)


def _environment(device: str) -> None:
    """Set what has to be set before anything is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["DS_ACCELERATOR"] = device
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # DeepSpeed's builder stumbles over suffixes such as 9.0a.
    archs = os.environ.get("TORCH_CUDA_ARCH_LIST")
    if archs:
        os.environ["TORCH_CUDA_ARCH_LIST"] = re.sub(r"(?<=\d)[a-z]\b", "", archs)


def main() -> None:
    """Read the command line and run a mode."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("memory_rows.csv"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", default="", help="rows to run, separated by commas")
    parser.add_argument("--caps", action="store_true", help="run rows under limits instead")
    parser.add_argument("--with-caps", action="store_true", help="the same, after the rows")
    parser.add_argument("--table", type=Path, help="print the table of this CSV; runs nothing")
    parser.add_argument("--list", action="store_true", help="print the rows; runs nothing")
    parser.add_argument("--budget-s", type=float, default=345, help="start no row after this")
    parser.add_argument("--timeout-s", type=float, default=60, help="end a row after this")
    parser.add_argument("--gpu-type", default="h200", help="the device that the model predicts")
    options = parser.parse_args()
    if options.table:
        with options.table.open(encoding="utf-8") as file:
            print_table(list(csv.DictReader(file)), options.gpu_type)
        return
    rows = _choose(options.only, [row.name for row in ROWS])
    capped = _choose(options.only if options.caps else "", CAPPED)
    if options.list:
        say("\n".join(f"{row.name:24}{row.topic}" for row in rows))
        return
    _environment(options.device)
    runner = Runner(options.device, timeout_s=options.timeout_s, gpu_type=options.gpu_type)
    runs_rows, runs_caps = not options.caps, options.caps or options.with_caps
    runner.prepare((*(rows if runs_rows else ()), *(capped if runs_caps else ())))
    if runs_rows:
        run_rows(runner, rows, options.out, options.budget_s)
    if runs_caps:
        run_caps(runner, capped, options.out.with_suffix(".caps.csv"))


if __name__ == "__main__":
    main()
