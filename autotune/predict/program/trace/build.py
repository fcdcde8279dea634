"""Building a model to trace, as a trial's rank builds it."""

from typing import Any

import torch
from torch import nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM

from autotune.job.model_shape import ModelShape
from autotune.predict.program.trace.fused_attention import FUSED
from autotune.predict.training_job import Training

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

_DEPTH = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def build_config(shape: ModelShape) -> Any:
    """Return the Hugging Face config of a model; raises whatever transformers raises."""
    values = dict(shape.hf_config)
    # Before the config is made, since it may list its layers by their number.
    name = next((name for name in _DEPTH if name in values), _DEPTH[0])
    before, values[name] = values.get(name), shape.num_hidden_layers
    if before != shape.num_hidden_layers:
        for key, listed in values.items():
            if isinstance(listed, list) and len(listed) == before:
                values[key] = [listed[k % before] for k in range(shape.num_hidden_layers)]
    config = AutoConfig.for_model(values.pop("model_type"), **values)
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
    model = _from_config(config, training)
    model.train()
    return model


def _from_config(config: Any, training: Training) -> nn.Module:
    """Build the model with the attention asked for, else with the next that its code knows."""
    attention = training.attn_implementation
    if attention == "eager":
        choices = ["eager"]
    elif attention == "sdpa" or not _is_fused(config):
        choices = ["sdpa", "eager"]
    else:
        choices = [FUSED, "sdpa", "eager"]
    dtype = _DTYPES[training.precision]
    for choice in choices:
        try:
            model: nn.Module = AutoModelForCausalLM.from_config(
                config, attn_implementation=choice, dtype=dtype
            )
        except (ValueError, KeyError):
            if choice == choices[-1]:
                raise
        else:
            break
    return model


def _is_fused(config: Any) -> bool:
    """Whether the model's class takes one of transformers' fused kernels."""
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    kinds = ("flash_attn", "flash_attn_2", "flex_attn")
    return any(getattr(model_class, f"_supports_{kind}", False) for kind in kinds)
