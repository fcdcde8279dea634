"""Which buffers each engine holds, how large and when: against DeepSpeed itself.

Covers what no measured row has. A tiny model trains on the CPU in a process of its own
(`tests.predict.real_engine`), where bytes are counted as tensors ask for them; the replay's peaks
are compared without the allocator's block waste.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from autotune.predict.program.items import Part
from tests.predict.jobs import job, replayed

MICRO_BATCH, SEQ_LEN, RANKS = 1, 16, 4
BLOCK_WASTE = 1_200_000
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 2_000,
    "tie_word_embeddings": False,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 256,
    "n_layer": 4,
    "n_head": 8,
    "vocab_size": 2_000,
    "n_positions": 64,
    "tie_word_embeddings": True,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
FROZEN = ["embed", "layers.0.", "layers.1.", "model.norm", "lm_head"]
WIDE = {"data_types": {"grad_accum_dtype": "fp32"}}
FP32: dict[str, Any] = {"bf16": {}}
TIED = LLAMA | {"tie_word_embeddings": True}

# What is changed in `zero_optimization`, in the ds_config, and in the job.
Change = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
CHANGES: dict[str, Change] = {
    "stage 0": ({"stage": 0}, {}, {}),
    "stage 0, fp32": ({"stage": 0}, FP32, {}),
    "stage 1": ({"stage": 1}, {}, {}),
    "stage 1, fp32": ({"stage": 1}, FP32, {}),
    "stage 1, fp32 sums": ({"stage": 1}, WIDE, {}),
    "stage 1, overlap": ({"stage": 1, "overlap_comm": True}, {}, {}),
    "stage 1, no bucket": ({"stage": 1, "contiguous_gradients": False}, {}, {}),
    "stage 1, sent in fp32": ({"stage": 1}, {"communication_data_type": "fp32"}, {}),
    "stage 2": ({"stage": 2}, {}, {}),
    "stage 2, fp32": ({"stage": 2}, FP32, {}),
    "stage 2, fp32 sums": ({"stage": 2}, WIDE, {}),
    "stage 2, fp32 sums, accumulated": ({"stage": 2}, WIDE, {"accumulation": 3}),
    "stage 2, accumulated": ({"stage": 2}, {}, {"accumulation": 3}),
    "stage 2, no bucket": ({"stage": 2, "contiguous_gradients": False}, {}, {}),
    "stage 2, all-reduce": ({"stage": 2, "reduce_scatter": False}, {}, {}),
    "stage 2, round robin": ({"stage": 2, "round_robin_gradients": True}, {}, {}),
    "stage 2, tied": ({"stage": 2}, {}, {"model": TIED}),
    "stage 2, frozen": ({"stage": 2}, {}, {"frozen": FROZEN}),
    "stage 2, gpt2": ({"stage": 2}, {}, {"model": GPT2}),
    "stage 3": ({"stage": 3}, {}, {}),
    "stage 3, fp32": ({"stage": 3}, FP32, {}),
    "stage 3, fp32 sums": ({"stage": 3}, WIDE, {}),
    "stage 3, no overlap": ({"stage": 3, "overlap_comm": False}, {}, {}),
    "stage 3, no bucket": ({"stage": 3, "contiguous_gradients": False}, {}, {}),
    "stage 3, sub-groups": ({"stage": 3, "sub_group_size": 100_000}, {}, {}),
    "stage 3, sent in fp32": ({"stage": 3}, {"communication_data_type": "fp32"}, {}),
    "stage 3, tied": ({"stage": 3}, {}, {"model": TIED}),
    "stage 3, gpt2": ({"stage": 3}, {}, {"model": GPT2}),
    "stage 3, no prefetch": (
        {
            "stage": 3,
            "stage3_prefetch_bucket_size": 0,
            "stage3_max_live_parameters": 1_000_000,
            "stage3_max_reuse_distance": 1_000_000,
        },
        {},
        {},
    ),
}
PARTS: dict[str, tuple[Part, ...]] = {
    "forward": (Part.FORWARD, Part.LOSS),
    "backward": (Part.BACKWARD, Part.REDUCTION),
    "optimizer step": (Part.STEP,),
}


def real_job(change: Change, *, rank: int = 0) -> dict[str, Any]:
    """Complete a change to what the real engine is asked to run."""
    zero, keys, other = change
    ds_config = {
        "train_micro_batch_size_per_gpu": MICRO_BATCH,
        "gradient_accumulation_steps": other.get("accumulation", 1),
        "bf16": {"enabled": True},
        # Without state tensors a step's own buffers show.
        "optimizer": {"type": "SGD", "params": {"lr": 1e-3}},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "reduce_bucket_size": 1_000_000,
            "stage3_param_persistence_threshold": 1_000,
            **zero,
        },
    } | keys
    return {
        "world_size": RANKS,
        "rank": rank,
        "model": other.get("model", LLAMA),
        "ds_config": ds_config,
        "dtype": "bfloat16" if ds_config["bf16"] else "float32",
        "micro_batch": MICRO_BATCH,
        "seq_len": SEQ_LEN,
        "frozen": other.get("frozen", []),
    }


def replay_of(change: Change, *, rank: int) -> tuple[int, dict[str, int]]:
    """Return our bytes after initialisation, and our peak of each part without block waste."""
    from autotune.job.model_shape import shape_from_hf_config
    from autotune.predict.training_job import ModelSettings

    asked = real_job(change, rank=rank)
    ds_config = dict(asked["ds_config"])
    shape = shape_from_hf_config(asked["model"], name="tiny", where="test")
    half = ModelSettings(
        trainable_parameters=shape.num_parameters // 2 if asked["frozen"] else None,
        trained_on_top=bool(asked["frozen"]),
    )
    zero = ds_config.pop("zero_optimization")
    result = replayed(
        job(zero, model=shape, ranks=RANKS, seq_len=SEQ_LEN, settings=half, **ds_config),
        workspace_bytes=0,
        rank=rank,
    )
    peaks = {
        name: max(
            peak.allocated_bytes - peak.items.get("block_waste", 0)
            for part, peak in result.peaks.items()
            if part in parts
        )
        for name, parts in PARTS.items()
    }
    return result.init_allocated_bytes, peaks


RUNS = [(name, 0) for name in CHANGES]
# Gradients of the last rank's own partition are the first to come, and stay.
RUNS += [(name, RANKS - 1) for name in CHANGES if name.startswith("stage 2")]
RUNS += [(name, 1) for name in ("stage 2, accumulated", "stage 2, no bucket")]


@pytest.fixture(scope="module")
def measured() -> dict[tuple[str, int], dict[str, Any]]:
    """Run every job in a fork of one process of DeepSpeed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.predict.real_engine"],
        input=json.dumps([real_job(CHANGES[name], rank=rank) for name, rank in RUNS]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    peaks = json.loads(done.stdout)
    assert None not in peaks, done.stderr[-2_000:]
    return dict(zip(RUNS, peaks, strict=True))


@pytest.mark.parametrize(("name", "rank"), RUNS)
def test_deepspeed_allocates_what_is_predicted(
    name: str, rank: int, measured: dict[tuple[str, int], dict[str, Any]]
) -> None:
    after_init, peaks = replay_of(CHANGES[name], rank=rank)
    real = measured[name, rank]
    assert real["after_init"] * 0.999 <= after_init <= real["after_init"] + BLOCK_WASTE
    assert {part: peaks[part] for part in PARTS} == {
        # Operators on the CPU keep a little less or more of a few tokens' activations.
        part: pytest.approx(real["peaks"][part], rel=0.01)
        for part in PARTS
    }
