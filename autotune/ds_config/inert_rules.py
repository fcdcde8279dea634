"""When a ds_config key cannot act: a table read out of DeepSpeed 0.19.8, key by key.

A rule says which keys, under which condition, why, and which functions of DeepSpeed show it. A
value that DeepSpeed refuses is never inert, however useless its key: leaving it out would turn a
run that dies into one that works. So conditions see the key's own value too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from autotune.ds_config.facts import Facts

Condition: TypeAlias = Callable[[Facts, Any], bool]

_ENGINE_ZERO = "runtime/engine.py: _configure_zero_optimizer"
_STAGE_1_2 = "runtime/zero/stage_1_and_2.py"
_STAGE_3 = "runtime/zero/stage3.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Keys that cannot act under a condition."""

    keys: frozenset[str]
    """Documented dotted names; `section.*` is every key below a section."""
    cannot_act: Condition
    """Sees the rest of the config and the key's own value."""
    why: str
    """One clause for a reader."""
    source: tuple[str, ...]
    """Where DeepSpeed shows it, each `file: function`."""

    def covers(self, key: str) -> bool:
        """Whether the rule is about a key."""
        if key in self.keys:
            return True
        parts = key.split(".")
        return any(".".join(parts[:n]) + ".*" in self.keys for n in range(1, len(parts)))


def _rule(keys: frozenset[str], cannot_act: Condition, why: str, *source: str) -> Rule:
    return Rule(keys=keys, cannot_act=cannot_act, why=why, source=source)


def _below(section: str, keys: str) -> frozenset[str]:
    return frozenset(f"{section}.{key}" for key in keys.split())


def _zero(keys: str) -> frozenset[str]:
    return _below("zero_optimization", keys)


def _stage_is_not(*stages: int) -> Condition:
    return lambda facts, _value: facts.stage not in stages


def _swaps_optimizer(facts: Facts) -> bool:
    # Stages 1 and 2 only ask whether the device is none, and take nvme for cpu.
    return facts.stage == 3 and facts.optimizer_device == "nvme"


def _swaps_params(facts: Facts) -> bool:
    return facts.stage == 3 and facts.param_device == "nvme"


def _reduces_without_scatter(facts: Facts, _value: Any) -> bool:
    return (
        facts.stage in (1, 2)
        # Offload makes gradients contiguous whatever the config says.
        and facts.optimizer_device == "none"
        and not facts.zero("contiguous_gradients")
        # With these, initialisation insists that reduce_scatter is off.
        and facts.value("gradient_predivide_factor") == 1
        and not facts.value("prescale_gradients")
    )


def _allgather_bucket_cannot_act(facts: Facts, value: Any) -> bool:
    # DeepSpeed refuses an odd size at stages 1 and 2, so there it does act.
    even = isinstance(value, int | float) and value % 2 == 0
    return even or facts.stage not in (1, 2) or facts.uses_bf16_optimizer


def _overlap_cannot_act_at_stage_0(facts: Facts, value: Any) -> bool:
    # Without managed accumulation DeepSpeed refuses it.
    return facts.stage == 0 and (not value or bool(facts.value("managed_gradient_accumulation")))


def _switched_off(section: str) -> Condition:
    return lambda facts, _value: not facts.value(f"{section}.enabled")


_ONLY_STAGE_3 = (
    "stage3_prefetch_bucket_size stage3_param_persistence_threshold "
    "stage3_model_persistence_threshold stage3_max_live_parameters stage3_max_reuse_distance "
    "stage3_module_granularity_threshold stage3_use_all_reduce_for_fetch_params "
    "stage3_allgather_sequential stage3_gather_16bit_weights_on_model_save sub_group_size "
    "offload_param offload_param.* zero_hpz_partition_size zero_quantized_weights "
    "zero_quantized_nontrainable_weights zero_quantized_gradients log_trace_cache_warnings "
    "enable_sanity_checks save_muon_momentum_buffer_in_memory memory_efficient_linear "
    "override_module_apply leaf_module leaf_module.*"
)
_ONLY_STAGES_1_2 = (
    "round_robin_gradients parameter_alignment use_multi_rank_bucket_allreduce "
    "ignore_unused_parameters elastic_checkpoint"
)
_REDUCTION = "reduce_bucket_size reduce_scatter contiguous_gradients"

_STAGE_RULES = (
    _rule(
        _zero("allgather_partitions cpu_offload_use_pin_memory") | {"disable_allgather"},
        lambda _facts, _value: True,
        "DeepSpeed never reads it",
        "runtime/engine.py: zero_allgather_partitions",
        "runtime/config.py: get_disable_allgather",
        "runtime/config_utils.py: _process_deprecated_field",
    ),
    _rule(
        _zero(_ONLY_STAGE_3),
        _stage_is_not(3),
        "only ZeRO stage 3 reads it",
        _ENGINE_ZERO,
        "runtime/engine.py: save_16bit_model",
        "runtime/zero/leaf_module_config.py: _validate_entries",
        "runtime/zero/partition_parameters.py: _update_persist_config",
    ),
    _rule(
        _zero(_ONLY_STAGES_1_2),
        _stage_is_not(1, 2),
        "only ZeRO stages 1 and 2 read it",
        _ENGINE_ZERO,
    ),
    _rule(
        _zero(_REDUCTION) | {"zero_allow_untested_optimizer"},
        _stage_is_not(1, 2, 3),
        "only ZeRO stages 1 to 3 read it",
        "runtime/engine.py: _do_optimizer_sanity_check",
        "runtime/engine.py: allreduce_gradients",
    ),
    _rule(
        _zero("overlap_comm"),
        _overlap_cannot_act_at_stage_0,
        "only ZeRO stages 1 to 3 read it",
        "runtime/engine.py: _do_sanity_check",
        "runtime/engine.py: allreduce_gradients",
    ),
    _rule(
        _zero("allgather_bucket_size"),
        _allgather_bucket_cannot_act,
        "weights are gathered in one call wherever torch has all_gather_into_tensor (since 1.13)",
        "runtime/utils.py: all_gather_dp_groups",
        "comm/torch.py: has_all_gather_into_tensor",
    ),
)
_PATH_RULES = (
    _rule(
        _zero(f"{_ONLY_STAGES_1_2} {_REDUCTION} overlap_comm offload_optimizer.pin_memory"),
        lambda facts, _value: (
            facts.uses_bf16_optimizer and bool(facts.value("managed_gradient_accumulation"))
        ),
        "stage 1 in bf16 with fp32 gradient accumulation is done by BF16_Optimizer, which does "
        "not read it",
        "runtime/engine.py: _do_optimizer_sanity_check",
        "runtime/engine.py: _configure_bf16_optimizer",
    ),
    _rule(
        _zero("contiguous_gradients"),
        lambda facts, _value: facts.stage in (1, 2) and facts.optimizer_device != "none",
        "with optimizer offload stages 1 and 2 make gradients contiguous in any case",
        f"{_STAGE_1_2}: __init__",
    ),
    _rule(
        _zero("ignore_unused_parameters"),
        lambda facts, _value: facts.optimizer_device == "none",
        "it is read with optimizer offload only",
        f"{_STAGE_1_2}: complete_grad_norm_calculation_for_cpu_offload",
    ),
    _rule(
        _zero("reduce_scatter use_multi_rank_bucket_allreduce"),
        _reduces_without_scatter,
        "without contiguous_gradients stages 1 and 2 all-reduce in any case",
        f"{_STAGE_1_2}: reduce_ipg_grads",
    ),
    _rule(
        _zero("use_multi_rank_bucket_allreduce"),
        lambda facts, _value: not facts.zero("reduce_scatter"),
        "it acts with reduce_scatter only",
        f"{_STAGE_1_2}: average_tensor",
    ),
    _rule(
        _zero("round_robin_gradients"),
        lambda facts, _value: facts.world_size == 1,
        "with one rank there is one partition",
        f"{_STAGE_1_2}: _round_robin_reorder",
    ),
    _rule(
        _zero("stage3_prefetch_bucket_size"),
        lambda facts, _value: bool(facts.zero("stage3_allgather_sequential")),
        "stage3_allgather_sequential sets it to 1",
        _ENGINE_ZERO,
    ),
    _rule(
        _zero("stage3_use_all_reduce_for_fetch_params"),
        lambda facts, _value: (
            facts.world_size == 1 or bool(facts.zero("stage3_allgather_sequential"))
        ),
        "parameters are not gathered together here",
        "runtime/zero/partition_parameters.py: all_gather_coalesced",
    ),
    _rule(
        _zero("save_muon_momentum_buffer_in_memory"),
        lambda facts, _value: str(facts.value("optimizer.type")).lower() != "muon",
        "it acts with the Muon optimizer only",
        f"{_STAGE_3}: __init__",
    ),
)
_OFFLOAD_RULES = (
    _rule(
        _zero("offload_optimizer.pin_memory"),
        lambda facts, _value: facts.stage == 0 or facts.optimizer_device == "none",
        "the optimizer is not offloaded",
        f"{_STAGE_1_2}: __init__",
        f"{_STAGE_3}: _configure_offloading",
    ),
    _rule(
        _zero(
            "offload_optimizer.nvme_path offload_optimizer.buffer_count "
            "offload_optimizer.pipeline_read offload_optimizer.pipeline_write"
        ),
        lambda facts, _value: not _swaps_optimizer(facts),
        "it acts with the optimizer offloaded to nvme at stage 3 only",
        f"{_STAGE_3}: _configure_tensor_swapping",
    ),
    _rule(
        _zero("offload_optimizer.fast_init"),
        lambda facts, _value: not (_swaps_optimizer(facts) and _swaps_params(facts)),
        "it acts with optimizer and parameters offloaded to nvme at stage 3 only",
        f"{_STAGE_3}: _create_fp32_partitions",
    ),
    _rule(
        _zero("offload_optimizer.ratio"),
        # Below 1 it is refused before stage 3.
        lambda facts, value: (
            facts.optimizer_device == "none" if facts.stage == 3 else bool(value == 1)
        ),
        "it acts with the optimizer offloaded at stage 3 only",
        f"{_STAGE_3}: _create_fp32_partitions",
        "runtime/zero/config.py: offload_ratio_check",
    ),
    _rule(
        _zero("offload_optimizer.super_offload"),
        _stage_is_not(3),
        "only ZeRO stage 3 reads it",
        _ENGINE_ZERO,
    ),
    _rule(
        _zero("offload_optimizer.cpuadam_cores_perc"),
        lambda facts, _value: facts.stage != 3 or not facts.zero("offload_optimizer.super_offload"),
        "it acts with super_offload at stage 3 only",
        "runtime/superoffload/superoffload_stage3.py: __init__",
    ),
    _rule(
        _zero("offload_param.pin_memory"),
        lambda facts, _value: facts.param_device == "none",
        "parameters are not offloaded",
        f"{_STAGE_3}: _configure_offloading",
        "runtime/zero/partition_parameters.py: __init__",
    ),
    _rule(
        _zero(
            "offload_param.nvme_path offload_param.buffer_count offload_param.buffer_size "
            "offload_param.max_in_cpu"
        ),
        lambda facts, _value: facts.param_device != "nvme",
        "it acts with parameters offloaded to nvme only",
        f"{_STAGE_3}: _create_param_groups_fp16_flat_cpu_memory",
        "runtime/swap_tensor/partitioned_param_swapper.py: __init__",
    ),
    _rule(
        frozenset({"aio.*"}),
        # `use_gds` is refused where the accelerator is not CUDA, so switched on it is not judged.
        lambda facts, value: (
            value is not True
            and not _swaps_optimizer(facts)
            and not _swaps_params(facts)
            and not facts.has_section("checkpoint.writer")
        ),
        "nothing is offloaded to nvme and no checkpoint writer is set",
        f"{_STAGE_3}: _configure_tensor_swapping",
        "runtime/swap_tensor/partitioned_param_swapper.py: __init__",
        "runtime/model_checkpointing/writer_factory.py: _setup_for_aio",
    ),
)
_LOSS_SCALING = (
    "initial_scale_power loss_scale_window hysteresis consecutive_hysteresis min_loss_scale"
)
_PRECISION_RULES = (
    _rule(
        _below("fp16", f"loss_scale {_LOSS_SCALING}"),
        _switched_off("fp16"),
        "fp16 is not enabled",
        "runtime/fp16/loss_scaler.py: CreateLossScaler",
    ),
    _rule(
        _below("fp16", _LOSS_SCALING),
        lambda facts, _value: facts.value("fp16.loss_scale") != 0,
        "the loss scale is fixed",
        "runtime/fp16/loss_scaler.py: CreateLossScaler",
    ),
    _rule(
        frozenset({"bf16.check_grad_overflow"}),
        _switched_off("bf16"),
        "bf16 is not enabled",
        _ENGINE_ZERO,
    ),
    _rule(
        frozenset({"bf16.immediate_grad_update"}),
        lambda facts, _value: not facts.uses_bf16_optimizer,
        "it acts at stage 1 in bf16 with fp32 gradient accumulation only",
        "runtime/engine.py: _configure_bf16_optimizer",
    ),
)
_SWITCHED_RULES = tuple(
    _rule(_below(section, keys), _switched_off(section), f"{section} is not enabled", source)
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

RULES = (*_STAGE_RULES, *_PATH_RULES, *_OFFLOAD_RULES, *_PRECISION_RULES, *_SWITCHED_RULES)
