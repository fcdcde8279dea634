"""Imports that would otherwise take time in every trial.

Measured on two CPU ranks: without the lazy ones a trial imports 670 more modules, which is most of
its time. Nothing here may start a thread or run a tensor operation: a fork of a process that did
either hangs in its first parallel operation.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator

# Imported lazily by the first `initialize`, `backward` or checkpointed forward.
_LAZY = (
    "accelerate.utils.deepspeed",
    "cattrs",
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
    "transformers.integrations.deepspeed",
    "transformers.modeling_flash_attention_utils",
    "transformers.models.auto.modeling_auto",
)


def preload(model_type: str, *, device_kind: str) -> None:
    """Import all that a rank needs, and the modelling code of one architecture."""
    with _without_nvml(device_kind):
        for name in ("deepspeed", "transformers", *_LAZY):
            importlib.import_module(name)
        importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")


@contextlib.contextmanager
def _without_nvml(device_kind: str) -> Iterator[None]:
    """Keep imports from using NVML to look for a device: a driver may start a thread for it.

    Modules that look for a device while they are imported get the answer of the ranks. DeepSpeed
    works without pynvml, and gets free memory from torch instead.
    """
    sys.modules["pynvml"] = None  # type: ignore[assignment]
    import torch

    asks_nvml = torch.cuda.is_available
    torch.cuda.is_available = lambda: device_kind == "cuda"
    try:
        yield
    finally:
        torch.cuda.is_available = asks_nvml
