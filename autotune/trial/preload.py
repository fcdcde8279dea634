"""Imports that a rank would otherwise pay for in every trial.

Measured on two CPU ranks: without the lazy ones a first trial imports 670 more modules, which is
most of its time. Nothing here may start a thread or run a tensor operation: a fork of a process
that did either hangs in its first parallel operation.
"""

import importlib

# Imported lazily by the first `initialize`, `backward` or checkpointed forward.
_LAZY = (
    "deepspeed.checkpoint",
    "deepspeed.module_inject.auto_ep_layer",
    "deepspeed.ops.adam",
    "deepspeed.ops.op_builder.all_ops",
    "deepspeed.runtime.bf16_optimizer",
    "deepspeed.runtime.superoffload.superoffload_stage3",
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "scipy.special",
    "torch._dynamo.backends.debugging",
    "torch._inductor.compile_fx",
    "torch.utils.cpp_extension",
    "transformers.modeling_flash_attention_utils",
    "transformers.models.auto.modeling_auto",
)


def preload(model_type: str) -> None:
    """Import all that a rank needs, and the modelling code of one architecture."""
    for name in ("torch", "deepspeed", "transformers", *_LAZY):
        importlib.import_module(name)
    importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
