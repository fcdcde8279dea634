"""When keys of the `zero_optimization` section cannot act: DeepSpeed 0.19.8, key by key.

Every field of the section was checked where DeepSpeed reads it. A field without a rule acts at
every stage that accepts it (`stage`, `offload_optimizer.device`, `sub_group_size`, ...), or acts on
checkpoints only, which counts as acting.
"""

from typing import Any

from autotune.ds_config.facts import Facts
from autotune.ds_config.inert_rule import Condition, below, rule

_ENGINE_ZERO = "runtime/engine.py: _configure_zero_optimizer"
_STAGE_1_2 = "runtime/zero/stage_1_and_2.py"
_STAGE_3 = "runtime/zero/stage3.py"


def _zero(keys: str) -> frozenset[str]:
    return below("zero_optimization", keys)


def _stage_is_not(*stages: int) -> Condition:
    return lambda facts, _value: facts.stage not in stages


def _accepts_reduce_scatter(facts: Facts) -> bool:
    # With these, initialisation requires reduce_scatter to be off.
    return facts.value("gradient_predivide_factor") == 1 and not facts.value("prescale_gradients")


def _reduces_without_scatter(facts: Facts, _value: Any) -> bool:
    return (
        facts.stage in (1, 2)
        # Offload makes gradients contiguous whatever the config sets.
        and facts.optimizer_device == "none"
        and not facts.zero("contiguous_gradients")
        and _accepts_reduce_scatter(facts)
    )


def _stage_3_scatters_anyway(facts: Facts, _value: Any) -> bool:
    return (
        facts.stage == 3
        and not facts.zero("contiguous_gradients")
        and _accepts_reduce_scatter(facts)
        # Muon requires it to be off, quantized gradients require it to be on.
        and str(facts.value("optimizer.type")).lower() != "muon"
        and not facts.zero("zero_quantized_gradients")
    )


def _allgather_bucket_cannot_act(facts: Facts, value: Any) -> bool:
    # DeepSpeed refuses an odd size at stages 1 and 2, so there it does act.
    even = isinstance(value, int | float) and value % 2 == 0
    return even or facts.stage not in (1, 2) or facts.uses_bf16_optimizer


def _overlap_cannot_act_at_stage_0(facts: Facts, value: Any) -> bool:
    # Without managed accumulation DeepSpeed refuses it.
    return facts.stage == 0 and (not value or bool(facts.value("managed_gradient_accumulation")))


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
    rule(
        _zero("allgather_partitions cpu_offload_use_pin_memory") | {"disable_allgather"},
        lambda _facts, _value: True,
        "DeepSpeed never reads it",
        "runtime/engine.py: zero_allgather_partitions",
        "runtime/config.py: get_disable_allgather",
        "runtime/config_utils.py: _process_deprecated_field",
    ),
    rule(
        _zero(_ONLY_STAGE_3),
        _stage_is_not(3),
        "only ZeRO stage 3 reads it",
        _ENGINE_ZERO,
        "runtime/engine.py: save_16bit_model",
        "runtime/zero/leaf_module_config.py: _validate_entries",
        "runtime/zero/partition_parameters.py: _update_persist_config",
    ),
    rule(
        _zero(_ONLY_STAGES_1_2),
        _stage_is_not(1, 2),
        "only ZeRO stages 1 and 2 read it",
        _ENGINE_ZERO,
    ),
    rule(
        _zero(_REDUCTION) | {"zero_allow_untested_optimizer"},
        _stage_is_not(1, 2, 3),
        "only ZeRO stages 1 to 3 read it",
        "runtime/engine.py: _do_optimizer_sanity_check",
        "runtime/engine.py: allreduce_gradients",
    ),
    rule(
        _zero("overlap_comm"),
        _overlap_cannot_act_at_stage_0,
        "only ZeRO stages 1 to 3 read it",
        "runtime/engine.py: _do_sanity_check",
        "runtime/engine.py: allreduce_gradients",
    ),
    rule(
        _zero("allgather_bucket_size"),
        _allgather_bucket_cannot_act,
        "weights are gathered in one call wherever torch has all_gather_into_tensor (since 1.13)",
        "runtime/utils.py: all_gather_dp_groups",
        "comm/torch.py: has_all_gather_into_tensor",
    ),
)
_PATH_RULES = (
    rule(
        _zero(f"{_ONLY_STAGES_1_2} {_REDUCTION} overlap_comm offload_optimizer.pin_memory"),
        lambda facts, _value: (
            facts.uses_bf16_optimizer and bool(facts.value("managed_gradient_accumulation"))
        ),
        "stage 1 in bf16 with fp32 gradient accumulation uses BF16_Optimizer, which does "
        "not read it",
        "runtime/engine.py: _do_optimizer_sanity_check",
        "runtime/engine.py: _configure_bf16_optimizer",
    ),
    rule(
        _zero("contiguous_gradients"),
        lambda facts, _value: facts.stage in (1, 2) and facts.optimizer_device != "none",
        "with optimizer offload stages 1 and 2 make gradients contiguous in any case",
        f"{_STAGE_1_2}: __init__",
    ),
    rule(
        _zero("ignore_unused_parameters"),
        lambda facts, _value: facts.optimizer_device == "none",
        "it is read with optimizer offload only",
        f"{_STAGE_1_2}: complete_grad_norm_calculation_for_cpu_offload",
    ),
    rule(
        _zero("reduce_scatter use_multi_rank_bucket_allreduce"),
        _reduces_without_scatter,
        "without contiguous_gradients stages 1 and 2 all-reduce in any case",
        f"{_STAGE_1_2}: reduce_ipg_grads",
    ),
    rule(
        _zero("use_multi_rank_bucket_allreduce"),
        lambda facts, _value: not facts.zero("reduce_scatter"),
        "it acts with reduce_scatter only",
        f"{_STAGE_1_2}: average_tensor",
    ),
    rule(
        _zero("round_robin_gradients"),
        lambda facts, _value: facts.world_size == 1,
        "with one rank there is one partition",
        f"{_STAGE_1_2}: _round_robin_reorder",
    ),
    rule(
        _zero("stage3_prefetch_bucket_size"),
        lambda facts, _value: bool(facts.zero("stage3_allgather_sequential")),
        "stage3_allgather_sequential sets it to 1",
        _ENGINE_ZERO,
    ),
    rule(
        _zero("stage3_use_all_reduce_for_fetch_params"),
        lambda facts, _value: (
            facts.world_size == 1 or bool(facts.zero("stage3_allgather_sequential"))
        ),
        "parameters are not gathered together here",
        "runtime/zero/partition_parameters.py: all_gather_coalesced",
    ),
    rule(
        _zero("stage3_max_live_parameters"),
        # It limits prefetching only: parameters are freed by reuse distance.
        lambda facts, _value: (
            facts.zero("stage3_prefetch_bucket_size") == 0
            and not facts.zero("stage3_allgather_sequential")
        ),
        "it limits prefetching, which is off",
        "runtime/zero/partitioned_param_coordinator.py: _fetch_sub_module_impl",
    ),
    rule(
        _zero("stage3_param_persistence_threshold"),
        lambda facts, _value: facts.zero("stage3_model_persistence_threshold") == 0,
        "stage3_model_persistence_threshold lets no parameter persist",
        "runtime/zero/parameter_offload.py: mark_persistent_parameters",
    ),
    rule(
        _zero("reduce_scatter"),
        _stage_3_scatters_anyway,
        "without contiguous_gradients stage 3 scatters in any case",
        f"{_STAGE_3}: __reduce_and_partition_ipg_grads",
    ),
    rule(
        _zero("save_muon_momentum_buffer_in_memory"),
        lambda facts, _value: str(facts.value("optimizer.type")).lower() != "muon",
        "it acts with the Muon optimizer only",
        f"{_STAGE_3}: __init__",
    ),
)
_OFFLOAD_RULES = (
    rule(
        _zero("offload_optimizer.pin_memory"),
        lambda facts, _value: facts.stage == 0 or facts.optimizer_device == "none",
        "the optimizer is not offloaded",
        f"{_STAGE_1_2}: __init__",
        f"{_STAGE_3}: _configure_offloading",
    ),
    rule(
        _zero(
            "offload_optimizer.nvme_path offload_optimizer.buffer_count "
            "offload_optimizer.pipeline_read offload_optimizer.pipeline_write"
        ),
        lambda facts, _value: not facts.swaps_optimizer,
        "it acts with the optimizer offloaded to nvme at stage 3 only",
        f"{_STAGE_3}: _configure_tensor_swapping",
    ),
    rule(
        _zero("offload_optimizer.fast_init"),
        lambda facts, _value: not (facts.swaps_optimizer and facts.swaps_params),
        "it acts with optimizer and parameters offloaded to nvme at stage 3 only",
        f"{_STAGE_3}: _create_fp32_partitions",
    ),
    rule(
        _zero("offload_optimizer.ratio"),
        # Below 1 it is refused before stage 3.
        lambda facts, value: (
            facts.optimizer_device == "none" if facts.stage == 3 else bool(value == 1)
        ),
        "it acts with the optimizer offloaded at stage 3 only",
        f"{_STAGE_3}: _create_fp32_partitions",
        "runtime/zero/config.py: offload_ratio_check",
    ),
    rule(
        _zero("offload_optimizer.super_offload"),
        _stage_is_not(3),
        "only ZeRO stage 3 reads it",
        _ENGINE_ZERO,
    ),
    rule(
        _zero("offload_optimizer.cpuadam_cores_perc"),
        lambda facts, _value: facts.stage != 3 or not facts.zero("offload_optimizer.super_offload"),
        "it acts with super_offload at stage 3 only",
        "runtime/superoffload/superoffload_stage3.py: __init__",
    ),
    rule(
        _zero("offload_param.pin_memory"),
        lambda facts, _value: facts.param_device == "none",
        "parameters are not offloaded",
        f"{_STAGE_3}: _configure_offloading",
        "runtime/zero/partition_parameters.py: __init__",
    ),
    rule(
        _zero(
            "offload_param.nvme_path offload_param.buffer_count offload_param.buffer_size "
            "offload_param.max_in_cpu"
        ),
        lambda facts, _value: facts.param_device != "nvme",
        "it acts with parameters offloaded to nvme only",
        f"{_STAGE_3}: _create_param_groups_fp16_flat_cpu_memory",
        "runtime/swap_tensor/partitioned_param_swapper.py: __init__",
    ),
)

ZERO_RULES = (*_STAGE_RULES, *_PATH_RULES, *_OFFLOAD_RULES)
