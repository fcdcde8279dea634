"""Builds the model of a trial, as a plain Hugging Face and DeepSpeed script would."""

import contextlib
import zlib
from collections.abc import Mapping
from typing import Any

import deepspeed
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations import HfDeepSpeedConfig

from autotune.trial.spec import TrialSpec

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def build_model(spec: TrialSpec, torch_device: str) -> torch.nn.Module:
    """Return the model in training mode, in the dtype it trains in.

    Under ZeRO stage 3 Hugging Face builds it inside `zero.Init`: the whole model may not fit on a
    device.
    """
    fields = dict(spec.hf_config)
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    config.use_cache = False
    sharded = _zero_stage(spec.ds_config) == 3
    torch.manual_seed(spec.seed)
    # transformers checks for a live one to detect stage 3.
    told_transformers = HfDeepSpeedConfig(dict(spec.ds_config)) if sharded else None
    with torch.device(torch_device):
        model: torch.nn.Module = AutoModelForCausalLM.from_config(
            config,
            attn_implementation=spec.attn_implementation,
            dtype=DTYPES[spec.precision],
        )
    del told_transformers
    if spec.activation_checkpointing:
        model.gradient_checkpointing_enable()  # type: ignore[operator]
    if spec.same_weights:
        _set_weights(model, spec.seed, sharded=sharded)
    return model.train()


def _zero_stage(ds_config: Mapping[str, Any]) -> int:
    return int(ds_config.get("zero_optimization", {}).get("stage", 0))


def _set_weights(model: torch.nn.Module, seed: int, *, sharded: bool) -> None:
    """Draw each matrix from its own generator; vectors keep their fixed initial values."""
    for name, parameter in model.named_parameters():
        shape = getattr(parameter, "ds_shape", parameter.shape)
        if len(shape) < 2:
            continue
        gathered = (
            deepspeed.zero.GatheredParameters([parameter], modifier_rank=0)
            if sharded
            else contextlib.nullcontext()
        )
        with gathered, torch.no_grad():
            if parameter.numel() == 0:
                continue  # sharded, and this rank does not modify
            generator = torch.Generator(parameter.device)
            generator.manual_seed(seed ^ zlib.crc32(name.encode()))
            parameter.normal_(0.0, 0.02, generator=generator)
