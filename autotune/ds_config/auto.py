"""Replaces "auto" in a ds_config as Hugging Face does.

Source: transformers 5.24, `integrations/deepspeed.py`, `HfTrainerDeepSpeedConfig`. A value that
depends on the user's TrainingArguments, such as a learning rate, gets the default of
TrainingArguments: it changes neither speed nor memory.
"""

from collections.abc import Mapping
from typing import Any

from autotune import dotted
from autotune.job.workload import Workload

# TrainingArguments' defaults, for values that change neither speed nor memory.
_TRAINING_ARGUMENTS: Mapping[str, Any] = {
    "optimizer.params.lr": 5e-5,
    "optimizer.params.betas": [0.9, 0.999],
    "optimizer.params.eps": 1e-8,
    "optimizer.params.weight_decay": 0.0,
    "scheduler.params.warmup_min_lr": 0.0,
    "scheduler.params.warmup_max_lr": 5e-5,
    # The default is 0, which DeepSpeed refuses since 0.19.6; Hugging Face then writes 1.
    "scheduler.params.warmup_num_steps": 1,
    "scheduler.params.total_num_steps": 100_000,
    "gradient_clipping": 1.0,
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": False,
    "checkpoint.use_node_local_storage": False,
}


def auto_buckets(hidden_size: int) -> dict[str, int]:
    """Return the bucket sizes that Hugging Face computes from a model's hidden size.

    The prefetch size is rounded down, as in transformers 5; earlier versions wrote a float, where
    DeepSpeed requires an integer.

    Example:
        >>> auto_buckets(128)["zero_optimization.stage3_prefetch_bucket_size"]
        14745
    """
    return {
        "zero_optimization.reduce_bucket_size": hidden_size * hidden_size,
        "zero_optimization.stage3_prefetch_bucket_size": int(0.9 * hidden_size * hidden_size),
        "zero_optimization.stage3_param_persistence_threshold": 10 * hidden_size,
    }


def resolve_auto(config: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
    """Return the config with every "auto" replaced by Hugging Face's value.

    Batch sizes are left out instead of replaced: `build_ds_config` sets them.
    """
    known = (
        dict(_TRAINING_ARGUMENTS)
        | auto_buckets(workload.model.hidden_size)
        | {
            "bf16.enabled": workload.precision == "bf16",
            "fp16.enabled": workload.precision == "fp16",
        }
    )
    autos = {key for key, value in dotted.flatten(config).items() if value == "auto"}
    resolved = {key: known[key] for key in autos if key in known}
    return dotted.updated(dotted.without(config, frozenset(autos)), resolved)
