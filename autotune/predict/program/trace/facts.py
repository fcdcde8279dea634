"""What a model's class and its parameters say, without running it."""

import warnings
from dataclasses import replace
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from autotune.job.model_shape import ModelShape
from autotune.predict.program.trace.build import build_config

_FLASH = "flash_attention_2"
_ASKED = ("sdpa", "eager", "flex_attention")


def find_facts(shape: ModelShape) -> dict[str, Any]:
    """Return the attention that a model supports, its own choice first, and its parameters.

    Raises whatever transformers raises.
    """
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        whole = AutoModelForCausalLM.from_config(build_config(shape))
        small = replace(shape, num_hidden_layers=1)
        supported = [name for name in _ASKED if _is_supported(small, name)]
    # Its kernels need not be installed where a job is planned: only the class is asked.
    if any(getattr(whole, f"_supports_{name}", False) for name in ("flash_attn", "flash_attn_2")):
        supported.append(_FLASH)
    own = str(whole.config._attn_implementation)
    return {
        "attention": list(dict.fromkeys([own, *supported])),
        "num_parameters": sum(parameter.numel() for parameter in whole.parameters()),
    }


def _is_supported(shape: ModelShape, attention: str) -> bool:
    try:
        AutoModelForCausalLM.from_config(build_config(shape), attn_implementation=attention)
    except (ValueError, ImportError):
        return False
    return True
