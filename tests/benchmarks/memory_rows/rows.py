"""The rows: jobs that no older file of `tests/data` has, by topic."""

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.memory_rows.spec import Spec

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


def choose(names: str, default: Sequence[str]) -> tuple[Spec, ...]:
    known = {row.name: row for row in ROWS}
    wanted = [name for name in names.split(",") if name] or list(default)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"no such row: {', '.join(unknown)}; rows: {', '.join(known)}")
    return tuple(known[name] for name in wanted)
