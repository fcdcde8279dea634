"""Init faults of everything but ZeRO itself, each with the config that fixes it."""

from typing import Any

from tests.lint.rules.init_fault import DROP, fault, zero

_SGD = {"optimizer": {"type": "SGD", "params": {"lr": 1e-3}}}
_MUON = {"optimizer": {"type": "Muon", "params": {"lr": 1e-3, "torch_adam": True}}}
_ADAM = "optimizer.params"
COMPLETE_LTD = {
    "enabled": True,
    "total_layer_num": 2,
    "random_ltd_layer_num": 1,
    "random_ltd_layer_id": [0],
    "model_mask_name": None,
    "model_type": "decoder",
    "hidden_state_order": "batch_seq_dim",
    "random_ltd_schedule": {
        "min_value": 1,
        "max_value": 2,
        "schedule_type": "fixed_linear",
        "schedule_config": {"require_steps": 1, "seq_per_step": 1},
    },
}
_ROUTING = "data_efficiency.data_routing.random_ltd"
_SAMPLING = "data_efficiency.data_sampling"


def _scheduler(name: str, **params: Any) -> dict[str, Any]:
    return {"scheduler": {"type": name, "params": params}}


COMMUNICATION = (
    fault(
        "gradient-division",
        {**zero(2), "gradient_predivide_factor": 2.0},
        {"zero_optimization.reduce_scatter": False},
        "gradient_predivide_factor != 1.0",
    ),
    fault(
        "gradient-division",
        {**zero(3), "prescale_gradients": True},
        {"prescale_gradients": False},
        "pre-scale gradients",
    ),
    fault(
        "gradient-predivide-zero",
        {"gradient_predivide_factor": 0},
        {"gradient_predivide_factor": 1},
        "division by zero",
    ),
    fault(
        "gradient-sum",
        {**zero(3), "gradient_allreduce_op": "sum"},
        {"zero_optimization.stage": 2},
        "not supported with ZeRO stage 3",
    ),
    fault(
        "unmanaged-accumulation",
        {**zero(1, overlap_comm=True), "managed_gradient_accumulation": False},
        {"zero_optimization.stage": 2},
        "overlap_comm only with ZeRO stage 2",
    ),
    fault(
        "unmanaged-accumulation",
        {**zero(1), "managed_gradient_accumulation": False},
        {"managed_gradient_accumulation": True},
        "not supported with pipeline",
        pipeline_stages=2,
    ),
)
PARALLEL = (
    fault(
        "pipeline-zero-stage",
        zero(2),
        {"zero_optimization.stage": 1},
        "incompatible with pipeline parallelism",
        pipeline_stages=2,
    ),
    fault(
        "tensor-parallel-size",
        {"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 4}}},
        {"tensor_parallel": DROP},
        "does not match tensor_parallel.autotp_size",
    ),
    fault(
        "sequence-parallel-size",
        {"sequence_parallel_size": 3, "data_parallel_size": 2},
        {"sequence_parallel_size": 2},
        "Mesh should not be bigger",
    ),
)
_EXPERTS = {"expert_parallel": {"enabled": True, "autoep_size": 2}}
EXPERT = (
    fault(
        "expert-parallel-size",
        {"expert_parallel": {"enabled": True, "autoep_size": 3}},
        {"expert_parallel.autoep_size": 4},
        "must divide the stage size",
    ),
    fault(
        "expert-parallel-choice",
        {**_EXPERTS, "expert_parallel.score_apply": "before"},
        {"expert_parallel.score_apply": "pre"},
        "score_apply must be one of",
    ),
    fault(
        "expert-parallel-choice",
        {**_EXPERTS, "expert_parallel.load_balance_coeff": 0.1},
        {"expert_parallel.load_balance_coeff": DROP},
        "load_balance_coeff=0.1 is not supported",
    ),
    fault(
        "expert-parallel-combination",
        {**_EXPERTS, "expert_parallel.row_weighting_impl": "fused"},
        {"expert_parallel.row_weighting_impl": "eager"},
        "only runs inside the DeepEP route",
    ),
    fault(
        "expert-parallel-combination",
        {
            **_EXPERTS,
            "expert_parallel.gate_up_impl": "fused",
            "expert_parallel.use_grouped_mm": False,
        },
        {"expert_parallel.use_grouped_mm": True},
        "use_grouped_mm=false",
    ),
    fault(
        "expert-parallel-tensor",
        {**_EXPERTS, "tensor_parallel.autotp_size": 2, "compile.deepcompile": True},
        {"tensor_parallel": DROP},
        "DeepCompile with AutoEP",
    ),
    fault(
        "expert-parallel-tensor",
        {
            **_EXPERTS,
            **zero(1, offload_optimizer={"device": "cpu"}),
            "tensor_parallel.autotp_size": 2,
        },
        {"tensor_parallel": DROP},
        "offload with AutoEP",
    ),
)
OPTIMIZER = (
    fault(
        "amsgrad",
        {"optimizer.params": {"lr": 1e-4, "amsgrad": True}},
        {"optimizer.params.torch_adam": True},
        "does not support the AMSGrad variant",
    ),
    fault(
        "lamb-loss-scale",
        {"optimizer": {"type": "Lamb", "params": {"lr": 1e-4}}, "fp16.loss_scale": 128},
        {"optimizer.type": "AdamW", "optimizer.params.torch_adam": True},
        "requires dynamic loss scaling",
    ),
    fault(
        "unknown-optimizer",
        {"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-3}}},
        {"optimizer.type": "Adam", "optimizer.params.torch_adam": True},
        "not a supported DeepSpeed Optimizer",
    ),
    fault(
        "unknown-optimizer",
        {"optimizer": {"type": "sgd", "params": {"lr": 1e-3}}},
        {"optimizer.type": "SGD"},
        "not a supported DeepSpeed Optimizer",
    ),
    fault(
        "optimizer-without-type",
        {"optimizer": {"params": {"lr": 1e-3, "torch_adam": True}}, **zero(2)},
        {"optimizer.type": "ADAMW"},
        "requires an optimizer",
    ),
    fault(
        "untested-optimizer",
        {**_SGD, **zero(1)},
        {"zero_allow_untested_optimizer": True},
        "untested ZeRO Optimizer",
    ),
    fault(
        "untested-optimizer",
        zero(2),
        {"zero_allow_untested_optimizer": True},
        "untested ZeRO Optimizer",
        client_optimizer="SGD",
    ),
    fault(
        "impossible-optimizer",
        {"optimizer": {"type": "LBFGS", "params": {"lr": 1e-3}}},
        {"optimizer.type": "SGD"},
        "closure",
    ),
    fault(
        "impossible-optimizer",
        {"optimizer": {"type": "SparseAdam", "params": {"lr": 1e-3}}},
        {"optimizer.type": "RAdam"},
        "dense gradients",
    ),
    fault(
        "muon",
        {**_MUON, **zero(3)},
        {"zero_optimization.reduce_scatter": False},
        "Muon and reduce scatter",
    ),
    fault(
        "muon",
        {**_MUON, f"{_ADAM}.ns_method": "newton"},
        {f"{_ADAM}.ns_method": "standard"},
        "ns_method must be one of",
    ),
    fault(
        "max-grad-norm",
        {f"{_ADAM}.max_grad_norm": 0},
        {f"{_ADAM}.max_grad_norm": DROP},
        "'max_grad_norm' is not supported",
    ),
    fault(
        "optimizer-parameter",
        {f"{_ADAM}.bias_correction": True},
        {f"{_ADAM}.bias_correction": DROP},
        "unexpected keyword argument 'bias_correction'",
    ),
    fault("optimizer-value", {f"{_ADAM}.lr": "1e-4"}, {f"{_ADAM}.lr": 1e-4}, "'str'"),
    fault("auto-outside-hf", {f"{_ADAM}.lr": "auto"}, {f"{_ADAM}.lr": 1e-4}, "'str'"),
    fault("optimizer-value", {f"{_ADAM}.lr": -1e-4}, {f"{_ADAM}.lr": 0}, "learning rate"),
    fault(
        "optimizer-value",
        {f"{_ADAM}.betas": [0.9, 1.0]},
        {f"{_ADAM}.betas": [0.9, 0.95]},
        "beta parameter",
    ),
    fault("optimizer-value", {f"{_ADAM}.betas": [0.9]}, {f"{_ADAM}.betas": [0.9, 0.95]}, "index"),
)
SCHEDULER = (
    fault(
        "unknown-scheduler",
        _scheduler("WarmupCosine", total_num_steps=10, warmup_num_steps=2),
        {"scheduler.type": "WarmupCosineLR"},
        "does not recognize LR scheduler",
    ),
    fault(
        "torch-scheduler",
        {**_scheduler("StepLR", step_size=2), **zero(1)},
        {"zero_optimization.stage": 0, "bf16.enabled": False},
        "is not an Optimizer",
    ),
    fault(
        "scheduler-params",
        {"scheduler": {"type": "WarmupLR"}},
        {"scheduler": _scheduler("WarmupLR")["scheduler"]},
        "must be a mapping",
    ),
    fault(
        "scheduler-params",
        _scheduler("WarmupDecayLR", warmup_num_steps=2),
        {"scheduler.params.total_num_steps": 10},
        "missing 1 required positional argument",
    ),
    fault(
        "scheduler-params",
        _scheduler("WarmupCosineLR", total_num_steps=10, warmup_max_lr=1e-4),
        {"scheduler.params.warmup_max_lr": DROP},
        "unexpected keyword argument 'warmup_max_lr'",
    ),
    fault(
        "scheduler-steps",
        _scheduler("WarmupLR", warmup_num_steps=10.0),
        {"scheduler.params.warmup_num_steps": 10},
        "must be a positive integer",
    ),
    fault(
        "scheduler-steps",
        _scheduler("WarmupDecayLR", warmup_num_steps=0, total_num_steps=10.0),
        {"scheduler.params.warmup_num_steps": 1},
        "must be a positive integer",
    ),
    fault(
        "scheduler-steps",
        _scheduler("WarmupDecayLR", total_num_steps="10"),
        {"scheduler.params.total_num_steps": 10_000},
        "'str' and 'int'",
    ),
    fault(
        "scheduler-steps",
        _scheduler("LRRangeTest", lr_range_test_step_size=5.0),
        {"scheduler.params.lr_range_test_step_size": 5},
        "must be a positive integer",
    ),
    fault(
        "scheduler-steps",
        _scheduler("OneCycle", cycle_min_lr=1e-5, cycle_max_lr=1e-4, cycle_first_step_size=0),
        {"scheduler.params.cycle_first_step_size": 0.5},
        "must be positive",
    ),
    fault(
        "scheduler-rate",
        _scheduler("WarmupLR", warmup_max_lr="1e-4"),
        {"scheduler.params.warmup_max_lr": [1e-4]},
        "'str' and 'float'",
    ),
)
OTHER = (
    fault("steps-per-print", {"steps_per_print": 0}, {"steps_per_print": None}, "modulo by zero"),
    fault("log-level", {"log_level": "loud"}, {"log_level": "INFO"}, "valid logging levels"),
    fault(
        "curriculum-metrics",
        {f"{_SAMPLING}.curriculum_learning": {"enabled": True}},
        {f"{_SAMPLING}.curriculum_learning.enabled": False},
        "curriculum_metrics must be specified",
    ),
    fault(
        "dynamic-batching-tokens",
        {f"{_SAMPLING}.dynamic_batching": {"enabled": True}},
        {f"{_SAMPLING}.dynamic_batching.max_tokens": 100},
        "max_tokens must be specified",
    ),
    fault(
        "random-ltd",
        {_ROUTING: {"enabled": True, "total_layer_num": 2}},
        {_ROUTING: COMPLETE_LTD},
        "random_ltd_layer_num",
    ),
    fault(
        "autotuning-run",
        {"autotuning": {"enabled": True, "model_info": {"profile": True}}},
        {"autotuning.enabled": False},
        "SystemExit",
    ),
)
