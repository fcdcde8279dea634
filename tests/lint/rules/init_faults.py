"""Configs that DeepSpeed's parser may take and `deepspeed.initialize` or the first step refuse.

Each stands with the nearest config that trains. All of them run on CPU ranks: fp16, CUDA kernels
and files on NVMe do not, so what depends on those is tested in the modules of the rules alone.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from autotune import dotted
from autotune.lint.subject import Launch, Subject

GPUS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class InitFault:
    """A fault, and the change that mends it."""

    rule: str
    bad: Mapping[str, Any]
    """Dotted keys on top of a plain bf16 config."""
    good: Mapping[str, Any]
    """Dotted keys on top of the bad config."""
    refusal: str
    """What DeepSpeed says; a regular expression."""
    client_optimizer: str | None = None
    """Class of `torch.optim`; without it the config names AdamW."""
    pipeline_stages: int = 1

    def configs(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the bad config and the good one."""
        base: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
        if self.client_optimizer is None:
            # DeepSpeed's own Adam would be compiled first.
            base["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}
        bad = dotted.updated(base, deepcopy(dict(self.bad)))
        good = dotted.updated(dotted.without(bad, _dropped(self.good)), _put(self.good))
        return bad, good

    def subject(self, config: Mapping[str, Any]) -> Subject:
        """Return what the rules see of one of the configs."""
        client = self.client_optimizer
        return Subject(
            config=config,
            launch=Launch(
                gpus=GPUS,
                client_optimizer=f"torch.optim.{client}" if client else None,
                pipeline_stages=self.pipeline_stages,
            ),
        )

    def question(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the real DeepSpeed is asked about one of the configs."""
        return {
            "ds_config": config,
            "world_size": GPUS,
            "client_optimizer": self.client_optimizer,
            "pipeline_stages": self.pipeline_stages,
        }


class _Drop:
    """Stands for a key that the good config does not have."""


DROP = _Drop()


def _dropped(changes: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(key for key, value in changes.items() if value is DROP)


def _put(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in changes.items() if value is not DROP}


def _zero(stage: int, **keys: Any) -> dict[str, Any]:
    return {f"zero_optimization.{key}": value for key, value in ({"stage": stage} | keys).items()}


def _fault(
    rule: str, bad: Mapping[str, Any], good: Mapping[str, Any], refusal: str, **launch: Any
) -> InitFault:
    return InitFault(rule=rule, bad=bad, good=good, refusal=refusal, **launch)


_CPU = {"device": "cpu"}
_NVME = {"device": "nvme"}
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


PRECISION = (
    _fault(
        "two-precisions",
        {"fp16.enabled": True},
        {"fp16.enabled": False},
        "cannot be simultaneously enabled",
    ),
    _fault(
        "loss-scaling",
        {"fp16.enabled": True, "fp16.loss_scale_window": 0, "bf16.enabled": False},
        {"fp16.enabled": False},
        "loss_scale_window must be > 0",
    ),
    _fault(
        "master-weights-stage",
        {"bf16.bf16_master_weights_and_grads": True, "bf16.bf16_optimizer_states": True},
        _zero(2),
        "only supported with ZeRO Stage",
    ),
    _fault(
        "master-weights-stage",
        {"bf16.bf16_optimizer_states": True, **_zero(2)},
        {"bf16.bf16_master_weights_and_grads": True},
        "requires bf16_master_weights_and_grads",
    ),
    _fault(
        "master-weights-offload",
        {"bf16.bf16_master_weights_and_grads": True, **_zero(2)},
        {"bf16.bf16_optimizer_states": True},
        "Master weights feature requires",
    ),
    _fault(
        "master-weights-offload",
        {
            "bf16.bf16_master_weights_and_grads": True,
            "bf16.bf16_optimizer_states": True,
            "fp16.fp16_master_weights_and_grads": True,
            **_zero(3),
        },
        {"fp16.fp16_master_weights_and_grads": False},
        "mutually exclusive",
    ),
    _fault(
        "gradient-accumulation-dtype",
        {"data_types.grad_accum_dtype": "fp32"},
        _zero(1),
        "unsupported mix",
    ),
    _fault(
        "gradient-accumulation-dtype",
        {"data_types.grad_accum_dtype": "int8", **_zero(1)},
        {"data_types.grad_accum_dtype": "fp32"},
        "can't be cast",
    ),
    _fault(
        "parameter-dtype",
        {"data_types.param_dtype": "fp32"},
        {"data_types.param_dtype": "bf16"},
        "conflicts with the enabled precision",
    ),
    _fault("input-cast", {"fp16.auto_cast": True}, {"fp16.auto_cast": False}, "same dtype"),
)
AUTOCAST = (
    _fault(
        "autocast-scaler",
        {"torch_autocast": {"enabled": True, "dtype": "float16"}},
        {"torch_autocast.dtype": "bfloat16"},
        "No inf checks",
    ),
    _fault(
        "autocast-modules",
        {
            "torch_autocast": {
                "enabled": True,
                "dtype": "bfloat16",
                "lower_precision_safe_modules": ["Linear"],
            }
        },
        {"torch_autocast.lower_precision_safe_modules": ["torch.nn.Linear"]},
        "Failed to import lower precision safe module Linear",
    ),
)
ZERO = (
    _fault(
        "gradient-norm-stage",
        _zero(3, compute_grad_norm=False),
        {"zero_optimization.compute_grad_norm": True},
        "only with ZeRO Stage 1 or 2",
    ),
    _fault(
        "gradient-norm-needed",
        _zero(2, compute_grad_norm=False),
        {"gradient_clipping": 0},
        "requires gradient_clipping=0",
    ),
    _fault(
        "gradient-norm-needed",
        {**_zero(1, compute_grad_norm=False, offload_optimizer=_CPU), "gradient_clipping": 0},
        {"zero_optimization.offload_optimizer": DROP},
        "does not support optimizer offload",
    ),
    _fault(
        "gradient-norm-needed",
        {
            **_zero(1, compute_grad_norm=False),
            "gradient_clipping": 0,
            "data_types.grad_accum_dtype": "fp32",
        },
        {"data_types": DROP},
        "FP32 gradient accumulation",
    ),
    _fault(
        "legacy-stage-1",
        _zero(1, legacy_stage1=True),
        {"zero_optimization.legacy_stage1": False},
        "deprecated version of ZeRO Stage 1",
    ),
    _fault(
        "hpz-world-size",
        _zero(3, zero_hpz_partition_size=3),
        {"zero_optimization.zero_hpz_partition_size": 2},
        "not divisible",
    ),
    _fault(
        "quantized-gradients-reduce-scatter",
        _zero(3, zero_quantized_gradients=True, reduce_scatter=False),
        {"zero_optimization.reduce_scatter": True},
        "reduce_scatter should also be enabled",
    ),
    _fault(
        "quantized-weights-autocast",
        {**_zero(3, zero_quantized_weights=True), "torch_autocast.enabled": True},
        {"zero_optimization.zero_quantized_weights": False},
        "both torch autocast and zero quantized weights",
    ),
    _fault(
        "allgather-bucket-alignment",
        _zero(2, allgather_bucket_size=1_000_001),
        {"zero_optimization.allgather_bucket_size": 1_000_002},
        "nccl_start_alignment_factor",
    ),
)
OFFLOAD = (
    _fault(
        "partial-offload-stage",
        _zero(2, offload_optimizer={"device": "cpu", "ratio": 0.5}),
        {"zero_optimization.offload_optimizer.ratio": 1},
        "Partial offloading only supported",
    ),
    _fault(
        "partial-offload-optimizer",
        _zero(3, offload_optimizer={"device": "cpu", "ratio": 0.5}),
        {"zero_optimization.offload_optimizer.ratio": 1},
        "Only Supports DeepSpeedCPUAdam",
    ),
    _fault(
        "offload-client-optimizer",
        _zero(2, offload_optimizer=_CPU),
        {"zero_force_ds_cpu_optimizer": False},
        "ZeRO-Offload with a client provided optimizer",
        client_optimizer="AdamW",
    ),
    _fault(
        "nvme-path",
        _zero(3, offload_param=_NVME),
        {"zero_optimization.offload_param": _CPU},
        "nvme_path",
    ),
    _fault(
        "nvme-path",
        _zero(3, offload_optimizer=_NVME),
        {"zero_optimization.offload_optimizer": _CPU},
        "NoneType",
    ),
    _fault(
        "zenflow-stage",
        _zero(0, zenflow={"select_strategy": "step", "select_interval": 4, "update_interval": 2}),
        {"zero_optimization.zenflow": DROP},
        "no attribute 'reduce_gradients'",
    ),
    _fault(
        "zenflow-offload",
        _zero(2, zenflow={"topk_ratio": 0.1}),
        {"zero_optimization.zenflow": DROP},
        "must be used with cpu offload",
    ),
    _fault(
        "zenflow-offload",
        _zero(2, offload_optimizer=_CPU, zenflow={"offload": True}),
        {"zero_optimization.zenflow": DROP},
        "should be used with overlap_comm",
    ),
    _fault(
        "zenflow-interval",
        _zero(2, offload_optimizer=_CPU, zenflow={"select_interval": 4}),
        {"zero_optimization.zenflow": DROP},
        "auto select strategy",
    ),
    _fault(
        "zenflow-interval",
        _zero(
            2,
            offload_optimizer=_CPU,
            zenflow={"select_strategy": "step", "select_interval": 2, "update_interval": 4},
        ),
        {"zero_optimization.zenflow": DROP},
        "greater or equal to update interval",
    ),
    _fault(
        "zenflow-optimizer",
        _zero(2, offload_optimizer=_CPU, zenflow={"topk_ratio": 0.1}),
        {"zero_optimization.zenflow": DROP},
        "unexpected keyword argument 'torch_adam'",
    ),
)
COMMUNICATION = (
    _fault(
        "gradient-division",
        {**_zero(2), "gradient_predivide_factor": 2.0},
        {"zero_optimization.reduce_scatter": False},
        "gradient_predivide_factor != 1.0",
    ),
    _fault(
        "gradient-division",
        {**_zero(3), "prescale_gradients": True},
        {"prescale_gradients": False},
        "pre-scale gradients",
    ),
    _fault(
        "gradient-predivide-zero",
        {"gradient_predivide_factor": 0},
        {"gradient_predivide_factor": 1},
        "division by zero",
    ),
    _fault(
        "gradient-sum",
        {**_zero(3), "gradient_allreduce_op": "sum"},
        {"zero_optimization.stage": 2},
        "not supported with ZeRO stage 3",
    ),
    _fault(
        "unmanaged-accumulation",
        {**_zero(1, overlap_comm=True), "managed_gradient_accumulation": False},
        {"zero_optimization.stage": 2},
        "overlap_comm only with ZeRO stage 2",
    ),
    _fault(
        "unmanaged-accumulation",
        {**_zero(1), "managed_gradient_accumulation": False},
        {"managed_gradient_accumulation": True},
        "not supported with pipeline",
        pipeline_stages=2,
    ),
)
PARALLEL = (
    _fault(
        "pipeline-zero-stage",
        _zero(2),
        {"zero_optimization.stage": 1},
        "incompatible with pipeline parallelism",
        pipeline_stages=2,
    ),
    _fault(
        "tensor-parallel-size",
        {"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 4}}},
        {"tensor_parallel": DROP},
        "does not match tensor_parallel.autotp_size",
    ),
    _fault(
        "sequence-parallel-size",
        {"sequence_parallel_size": 3, "data_parallel_size": 2},
        {"sequence_parallel_size": 2},
        "Mesh should not be bigger",
    ),
)
OPTIMIZER = (
    _fault(
        "unknown-optimizer",
        {"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-3}}},
        {"optimizer.type": "Adam", "optimizer.params.torch_adam": True},
        "not a supported DeepSpeed Optimizer",
    ),
    _fault(
        "unknown-optimizer",
        {"optimizer": {"type": "sgd", "params": {"lr": 1e-3}}},
        {"optimizer.type": "SGD"},
        "not a supported DeepSpeed Optimizer",
    ),
    _fault(
        "optimizer-without-type",
        {"optimizer": {"params": {"lr": 1e-3, "torch_adam": True}}, **_zero(2)},
        {"optimizer.type": "ADAMW"},
        "requires an optimizer",
    ),
    _fault(
        "untested-optimizer",
        {**_SGD, **_zero(1)},
        {"zero_allow_untested_optimizer": True},
        "untested ZeRO Optimizer",
    ),
    _fault(
        "untested-optimizer",
        _zero(2),
        {"zero_allow_untested_optimizer": True},
        "untested ZeRO Optimizer",
        client_optimizer="SGD",
    ),
    _fault(
        "impossible-optimizer",
        {"optimizer": {"type": "LBFGS", "params": {"lr": 1e-3}}},
        {"optimizer.type": "SGD"},
        "closure",
    ),
    _fault(
        "impossible-optimizer",
        {"optimizer": {"type": "SparseAdam", "params": {"lr": 1e-3}}},
        {"optimizer.type": "RAdam"},
        "dense gradients",
    ),
    _fault(
        "muon",
        {**_MUON, **_zero(3)},
        {"zero_optimization.reduce_scatter": False},
        "Muon and reduce scatter",
    ),
    _fault(
        "muon",
        {**_MUON, f"{_ADAM}.ns_method": "newton"},
        {f"{_ADAM}.ns_method": "standard"},
        "ns_method must be one of",
    ),
    _fault(
        "max-grad-norm",
        {f"{_ADAM}.max_grad_norm": 0},
        {f"{_ADAM}.max_grad_norm": DROP},
        "'max_grad_norm' is not supported",
    ),
    _fault(
        "optimizer-parameter",
        {f"{_ADAM}.bias_correction": True},
        {f"{_ADAM}.bias_correction": DROP},
        "unexpected keyword argument 'bias_correction'",
    ),
    _fault("optimizer-value", {f"{_ADAM}.lr": "1e-4"}, {f"{_ADAM}.lr": 1e-4}, "'str'"),
    _fault("auto-outside-hf", {f"{_ADAM}.lr": "auto"}, {f"{_ADAM}.lr": 1e-4}, "'str'"),
    _fault("optimizer-value", {f"{_ADAM}.lr": -1e-4}, {f"{_ADAM}.lr": 0}, "learning rate"),
    _fault(
        "optimizer-value",
        {f"{_ADAM}.betas": [0.9, 1.0]},
        {f"{_ADAM}.betas": [0.9, 0.95]},
        "beta parameter",
    ),
    _fault("optimizer-value", {f"{_ADAM}.betas": [0.9]}, {f"{_ADAM}.betas": [0.9, 0.95]}, "index"),
)
SCHEDULER = (
    _fault(
        "unknown-scheduler",
        _scheduler("WarmupCosine", total_num_steps=10, warmup_num_steps=2),
        {"scheduler.type": "WarmupCosineLR"},
        "does not recognize LR scheduler",
    ),
    _fault(
        "torch-scheduler",
        {**_scheduler("StepLR", step_size=2), **_zero(1)},
        {"zero_optimization.stage": 0, "bf16.enabled": False},
        "is not an Optimizer",
    ),
    _fault(
        "scheduler-params",
        {"scheduler": {"type": "WarmupLR"}},
        {"scheduler": _scheduler("WarmupLR")["scheduler"]},
        "must be a mapping",
    ),
    _fault(
        "scheduler-params",
        _scheduler("WarmupDecayLR", warmup_num_steps=2),
        {"scheduler.params.total_num_steps": 10},
        "missing 1 required positional argument",
    ),
    _fault(
        "scheduler-params",
        _scheduler("WarmupCosineLR", total_num_steps=10, warmup_max_lr=1e-4),
        {"scheduler.params.warmup_max_lr": DROP},
        "unexpected keyword argument 'warmup_max_lr'",
    ),
    _fault(
        "scheduler-steps",
        _scheduler("WarmupLR", warmup_num_steps=10.0),
        {"scheduler.params.warmup_num_steps": 10},
        "must be a positive integer",
    ),
    _fault(
        "scheduler-steps",
        _scheduler("WarmupDecayLR", warmup_num_steps=0, total_num_steps=10.0),
        {"scheduler.params.warmup_num_steps": 1},
        "must be a positive integer",
    ),
    _fault(
        "scheduler-steps",
        _scheduler("WarmupDecayLR", total_num_steps="10"),
        {"scheduler.params.total_num_steps": 10_000},
        "'str' and 'int'",
    ),
    _fault(
        "scheduler-steps",
        _scheduler("LRRangeTest", lr_range_test_step_size=5.0),
        {"scheduler.params.lr_range_test_step_size": 5},
        "must be a positive integer",
    ),
    _fault(
        "scheduler-steps",
        _scheduler("OneCycle", cycle_min_lr=1e-5, cycle_max_lr=1e-4, cycle_first_step_size=0),
        {"scheduler.params.cycle_first_step_size": 0.5},
        "must be positive",
    ),
    _fault(
        "scheduler-rate",
        _scheduler("WarmupLR", warmup_max_lr="1e-4"),
        {"scheduler.params.warmup_max_lr": [1e-4]},
        "'str' and 'float'",
    ),
)
OTHER = (
    _fault("steps-per-print", {"steps_per_print": 0}, {"steps_per_print": None}, "modulo by zero"),
    _fault("log-level", {"log_level": "loud"}, {"log_level": "INFO"}, "valid logging levels"),
    _fault(
        "curriculum-metrics",
        {f"{_SAMPLING}.curriculum_learning": {"enabled": True}},
        {f"{_SAMPLING}.curriculum_learning.enabled": False},
        "curriculum_metrics must be specified",
    ),
    _fault(
        "dynamic-batching-tokens",
        {f"{_SAMPLING}.dynamic_batching": {"enabled": True}},
        {f"{_SAMPLING}.dynamic_batching.max_tokens": 100},
        "max_tokens must be specified",
    ),
    _fault(
        "random-ltd",
        {_ROUTING: {"enabled": True, "total_layer_num": 2}},
        {_ROUTING: COMPLETE_LTD},
        "random_ltd_layer_num",
    ),
    _fault(
        "autotuning-run",
        {"autotuning": {"enabled": True, "model_info": {"profile": True}}},
        {"autotuning.enabled": False},
        "SystemExit",
    ),
)

FAULTS = (
    *PRECISION,
    *AUTOCAST,
    *ZERO,
    *OFFLOAD,
    *COMMUNICATION,
    *PARALLEL,
    *OPTIMIZER,
    *SCHEDULER,
    *OTHER,
)
