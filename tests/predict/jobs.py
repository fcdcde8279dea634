"""Small makers of jobs for tests of the memory model."""

from typing import Any

from autotune.job.model_shape import PRESETS, ModelShape, shape_from_hf_config
from autotune.job.workload import Workload
from autotune.predict.memory.replay import Replayed, replay
from autotune.predict.program.families import program
from autotune.predict.training_job import ModelSettings, Training, read_training

HOPPER_WORKSPACE_BYTES = 32 * 2**20


def job(
    zero: dict[str, Any] | None = None,
    *,
    model: ModelShape | str = "1.3b",
    ranks: int = 8,
    seq_len: int = 1_024,
    settings: ModelSettings | None = None,
    **keys: Any,
) -> Training:
    """Return a bf16 job with Adam; `keys` are further ds_config keys."""
    ds_config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": zero or {},
    }
    ds_config |= keys
    shape = PRESETS[model] if isinstance(model, str) else model
    workload = Workload(
        model=shape,
        seq_len=seq_len,
        global_batch_size=ranks,
        world_size=ranks,
        precision="bf16",
        optimizer={"type": "AdamW"},
        gradient_clipping=1.0,
    )
    return read_training(ds_config, workload, settings)


def replayed(
    training: Training, *, workspace_bytes: int = HOPPER_WORKSPACE_BYTES, rank: int = 0
) -> Replayed:
    """Replay a job, on a Hopper device by default."""
    return replay(training, program(training), workspace_bytes=workspace_bytes, rank=rank)


def small_llama(**changes: Any) -> ModelShape:
    """Return a LLaMA of 20M parameters, quick to replay."""
    config = {
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1_408,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "vocab_size": 4_000,
        "tie_word_embeddings": False,
    }
    return shape_from_hf_config(config | changes, name="small", where="test")
