"""When keys outside the `zero_optimization` section cannot act, in DeepSpeed 0.19.8."""

from typing import Any

from autotune.ds_config.facts import Facts
from autotune.ds_config.inert_rule import Condition, below, rule


def _switched_off(section: str) -> Condition:
    return lambda facts, _value: not facts.value(f"{section}.enabled")


def _uses_no_file_io(facts: Facts, value: Any) -> bool:
    # `use_gds` is refused where the accelerator is not CUDA, so it is not judged if it is on.
    return (
        value is not True
        and not facts.swaps_optimizer
        and not facts.swaps_params
        and not facts.has_section("checkpoint.writer")
    )


_AIO_RULE = rule(
    frozenset({"aio.*"}),
    _uses_no_file_io,
    "nothing is offloaded to nvme and no checkpoint writer is set",
    "runtime/zero/stage3.py: _configure_tensor_swapping",
    "runtime/swap_tensor/partitioned_param_swapper.py: __init__",
    "runtime/model_checkpointing/writer_factory.py: _setup_for_aio",
)
_LOSS_SCALING = (
    "initial_scale_power loss_scale_window hysteresis consecutive_hysteresis min_loss_scale"
)
_PRECISION_RULES = (
    rule(
        below("fp16", f"loss_scale {_LOSS_SCALING}"),
        _switched_off("fp16"),
        "fp16 is not enabled",
        "runtime/fp16/loss_scaler.py: CreateLossScaler",
    ),
    rule(
        below("fp16", _LOSS_SCALING),
        lambda facts, _value: facts.value("fp16.loss_scale") != 0,
        "the loss scale is fixed",
        "runtime/fp16/loss_scaler.py: CreateLossScaler",
    ),
    rule(
        frozenset({"bf16.check_grad_overflow"}),
        _switched_off("bf16"),
        "bf16 is not enabled",
        "runtime/engine.py: _configure_zero_optimizer",
    ),
    rule(
        frozenset({"bf16.immediate_grad_update"}),
        lambda facts, _value: not facts.uses_bf16_optimizer,
        "it acts at stage 1 in bf16 with fp32 gradient accumulation only",
        "runtime/engine.py: _configure_bf16_optimizer",
    ),
)
_SWITCHED_RULES = tuple(
    rule(below(section, keys), _switched_off(section), f"{section} is not enabled", source)
    for section, keys, source in (
        ("tensorboard", "output_path job_name", "monitor/tensorboard.py: __init__"),
        ("wandb", "group team project", "monitor/wandb.py: __init__"),
        ("csv_monitor", "output_path job_name", "monitor/csv_monitor.py: __init__"),
        (
            "comet",
            "samples_log_interval project workspace api_key experiment_name experiment_key online "
            "mode",
            "monitor/comet.py: __init__",
        ),
        (
            "flops_profiler",
            "recompute_fwd_factor profile_step module_depth top_modules detailed output_file",
            "runtime/engine.py: flops_profiler_enabled",
        ),
        (
            "hybrid_engine",
            "max_out_tokens inference_tp_size release_inference_cache pin_parameters "
            "tp_gather_partition_size enable_cuda_graph",
            "__init__.py: initialize",
        ),
        (
            "torch_autocast",
            "dtype lower_precision_safe_modules",
            "runtime/engine.py: torch_autocast_enabled",
        ),
        ("timers.throughput", "synchronized", "utils/timer.py: _init_timer"),
        ("comms_logger", "prof_all prof_ops verbose debug", "comm/comm.py: configure"),
    )
)

SECTION_RULES = (_AIO_RULE, *_PRECISION_RULES, *_SWITCHED_RULES)
