"""Small models whose programs are traced."""

from typing import Any

from autotune.job.model_shape import shape_from_hf_config
from autotune.predict.training_job import Training
from tests.predict.jobs import job

COMMON: dict[str, Any] = {
    "hidden_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 8_000,
    "intermediate_size": 1_408,
    "tie_word_embeddings": False,
}


def training_of(
    config: dict[str, Any], zero: dict[str, Any] | None = None, **keys: Any
) -> Training:
    """Return a job on the model of a Hugging Face config."""
    config = dict(config)
    if config["model_type"] == "opt":
        del config["intermediate_size"]
    shape = shape_from_hf_config(config, name="test", where="test")
    usual: dict[str, Any] = {"train_micro_batch_size_per_gpu": 2, "seq_len": 512}
    zero = {"reduce_bucket_size": 5_000_000} | (zero or {"stage": 2})
    return job(zero, model=shape, **usual | keys)
