"""Building a model to trace, as a trial's rank builds it."""

from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from autotune.job.model_shape import ModelShape
from autotune.predict.training_job import Training

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def build_config(shape: ModelShape) -> Any:
    """Return the Hugging Face config of a model; raises whatever transformers raises."""
    values = dict(shape.hf_config)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    config.num_hidden_layers = shape.num_hidden_layers
    config.use_cache = False
    return config


def build_model(training: Training) -> nn.Module:
    """Return the job's model in training mode; raises whatever transformers raises."""
    config = build_config(training.model)
    eager = training.attn_implementation == "eager"
    if not eager:
        # CUDA's fused kernels drop scores without keeping them; the CPU's cannot and would fall
        # back to a quadratic computation.
        for name in ("attention_dropout", "attn_pdrop"):
            if hasattr(config, name):
                setattr(config, name, 0.0)
    model = _from_config(config, training, attention="eager" if eager else "sdpa")
    model.train()
    return model


def _from_config(config: Any, training: Training, *, attention: str) -> nn.Module:
    """Build the model; one that knows no fused attention is built with its own."""
    dtype = _DTYPES[training.precision]
    build = AutoModelForCausalLM.from_config
    try:
        model: nn.Module = build(config, attn_implementation=attention, dtype=dtype)
    except ValueError:
        if attention == "eager":
            raise
        model = build(config, attn_implementation="eager", dtype=dtype)
    return model
