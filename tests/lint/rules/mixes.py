"""Configs put together at random from settings that all act on CPU ranks."""

import random
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from autotune import dotted

_ZERO = "zero_optimization"
_ADAMW = {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    f"{_ZERO}.stage": (0, 1, 2, 3),
    f"{_ZERO}.overlap_comm": (True, False),
    f"{_ZERO}.reduce_scatter": (True, False),
    f"{_ZERO}.contiguous_gradients": (True, False),
    f"{_ZERO}.compute_grad_norm": (True, False),
    f"{_ZERO}.allgather_bucket_size": (2e8, 1001, 1000),
    f"{_ZERO}.reduce_bucket_size": (1, 500, 1e6),
    f"{_ZERO}.offload_optimizer.device": ("none", "cpu"),
    f"{_ZERO}.offload_optimizer.ratio": (1.0, 0.5),
    f"{_ZERO}.offload_param.device": ("none", "cpu"),
    f"{_ZERO}.zero_hpz_partition_size": (1, 2, 3, 8),
    f"{_ZERO}.zero_quantized_gradients": (True, False),
    f"{_ZERO}.legacy_stage1": (False, True),
    f"{_ZERO}.stage3_prefetch_bucket_size": (0, 100),
    f"{_ZERO}.sub_group_size": (1, 1e9),
    "bf16.enabled": (True, False),
    "bf16.bf16_master_weights_and_grads": (True, False),
    "bf16.bf16_optimizer_states": (True, False),
    "fp16.enabled": (False,),
    "fp16.fp16_master_weights_and_grads": (False, True),
    "data_types.grad_accum_dtype": ("fp32", "bf16"),
    "data_types.param_dtype": ("bf16", "fp32"),
    "gradient_clipping": (0, 1.0),
    "gradient_predivide_factor": (1.0, 2.0),
    "prescale_gradients": (True, False),
    "gradient_allreduce_op": ("mean", "sum"),
    "managed_gradient_accumulation": (True, False),
    "communication_data_type": ("fp32", "bf16"),
    "steps_per_print": (None, 0, 10),
    "torch_autocast": ({"enabled": True, "dtype": "bfloat16"}, {"enabled": False}),
    "optimizer": (
        _ADAMW,
        {"type": "SGD", "params": {"lr": 1e-4}},
        {"type": "SGD", "params": {"betas": [0.9, 0.99]}},
        {"type": "Adam", "params": {"torch_adam": True, "max_grad_norm": 1}},
        {"type": "NAdam", "params": {"lr": 1e-3}},
    ),
    "zero_allow_untested_optimizer": (True, False),
    "scheduler": (
        {"type": "WarmupLR", "params": {"warmup_num_steps": 5}},
        {"type": "WarmupDecayLR", "params": {"total_num_steps": 10}},
        {"type": "StepLR", "params": {"step_size": 3}},
        {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1e-3}},
    ),
    "gradient_accumulation_steps": (1, 2),
}


def mixed(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield configs, the same ones for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        names = chance.sample(list(_CHOICES), chance.randint(2, 8))
        if chance.random() < 0.7:
            names.append(f"{_ZERO}.stage")
        chosen = {name: deepcopy(chance.choice(_CHOICES[name])) for name in names}
        plain = {
            "train_micro_batch_size_per_gpu": 1,
            "bf16": {"enabled": True},
            "optimizer": deepcopy(_ADAMW),
        }
        yield dotted.updated(plain, chosen)
