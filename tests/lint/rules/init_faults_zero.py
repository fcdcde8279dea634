"""Init faults of precision, ZeRO and offload, each with the config that fixes it."""

from tests.lint.rules.init_fault import DROP, fault, zero

_CPU = {"device": "cpu"}
_NVME = {"device": "nvme"}

PRECISION = (
    fault(
        "two-precisions",
        {"fp16.enabled": True},
        {"fp16.enabled": False},
        "cannot be simultaneously enabled",
    ),
    fault(
        "loss-scaling",
        {"fp16.enabled": True, "fp16.loss_scale_window": 0, "bf16.enabled": False},
        {"fp16.enabled": False},
        "loss_scale_window must be > 0",
    ),
    fault(
        "master-weights-stage",
        {"bf16.bf16_master_weights_and_grads": True, "bf16.bf16_optimizer_states": True},
        zero(2),
        "only supported with ZeRO Stage",
    ),
    fault(
        "master-weights-stage",
        {"bf16.bf16_optimizer_states": True, **zero(2)},
        {"bf16.bf16_master_weights_and_grads": True},
        "requires bf16_master_weights_and_grads",
    ),
    fault(
        "master-weights-offload",
        {"bf16.bf16_master_weights_and_grads": True, **zero(2)},
        {"bf16.bf16_optimizer_states": True},
        "Master weights feature requires",
    ),
    fault(
        "master-weights-offload",
        {
            "bf16.bf16_master_weights_and_grads": True,
            "bf16.bf16_optimizer_states": True,
            "fp16.fp16_master_weights_and_grads": True,
            **zero(3),
        },
        {"fp16.fp16_master_weights_and_grads": False},
        "mutually exclusive",
    ),
    fault(
        "gradient-accumulation-dtype",
        {"data_types.grad_accum_dtype": "fp32"},
        zero(1),
        "unsupported mix",
    ),
    fault(
        "gradient-accumulation-dtype",
        {"data_types.grad_accum_dtype": "int8", **zero(1)},
        {"data_types.grad_accum_dtype": "fp32"},
        "can't be cast",
    ),
    fault(
        "parameter-dtype",
        {"data_types.param_dtype": "fp32"},
        {"data_types.param_dtype": "bf16"},
        "conflicts with the enabled precision",
    ),
    fault("input-cast", {"fp16.auto_cast": True}, {"fp16.auto_cast": False}, "same dtype"),
)
AUTOCAST = (
    fault(
        "autocast-scaler",
        {"torch_autocast": {"enabled": True, "dtype": "float16"}},
        {"torch_autocast.dtype": "bfloat16"},
        "No inf checks",
    ),
    fault(
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
    fault(
        "gradient-norm-stage",
        zero(3, compute_grad_norm=False),
        {"zero_optimization.compute_grad_norm": True},
        "only with ZeRO Stage 1 or 2",
    ),
    fault(
        "gradient-norm-needed",
        zero(2, compute_grad_norm=False),
        {"gradient_clipping": 0},
        "requires gradient_clipping=0",
    ),
    fault(
        "gradient-norm-needed",
        {**zero(1, compute_grad_norm=False, offload_optimizer=_CPU), "gradient_clipping": 0},
        {"zero_optimization.offload_optimizer": DROP},
        "does not support optimizer offload",
    ),
    fault(
        "gradient-norm-needed",
        {
            **zero(1, compute_grad_norm=False),
            "gradient_clipping": 0,
            "data_types.grad_accum_dtype": "fp32",
        },
        {"data_types": DROP},
        "FP32 gradient accumulation",
    ),
    fault(
        "legacy-stage-1",
        zero(1, legacy_stage1=True),
        {"zero_optimization.legacy_stage1": False},
        "deprecated version of ZeRO Stage 1",
    ),
    fault(
        "hpz-world-size",
        zero(3, zero_hpz_partition_size=3),
        {"zero_optimization.zero_hpz_partition_size": 2},
        "not divisible",
    ),
    fault(
        "quantized-gradients-reduce-scatter",
        zero(3, zero_quantized_gradients=True, reduce_scatter=False),
        {"zero_optimization.reduce_scatter": True},
        "reduce_scatter should also be enabled",
    ),
    fault(
        "quantized-weights-autocast",
        {**zero(3, zero_quantized_weights=True), "torch_autocast.enabled": True},
        {"zero_optimization.zero_quantized_weights": False},
        "both torch autocast and zero quantized weights",
    ),
    fault(
        "allgather-bucket-alignment",
        zero(2, allgather_bucket_size=1_000_001),
        {"zero_optimization.allgather_bucket_size": 1_000_002},
        "nccl_start_alignment_factor",
    ),
)
OFFLOAD = (
    fault(
        "partial-offload-stage",
        zero(2, offload_optimizer={"device": "cpu", "ratio": 0.5}),
        {"zero_optimization.offload_optimizer.ratio": 1},
        "Partial offloading only supported",
    ),
    fault(
        "partial-offload-optimizer",
        zero(3, offload_optimizer={"device": "cpu", "ratio": 0.5}),
        {"zero_optimization.offload_optimizer.ratio": 1},
        "Only Supports DeepSpeedCPUAdam",
    ),
    fault(
        "offload-client-optimizer",
        zero(2, offload_optimizer=_CPU),
        {"zero_force_ds_cpu_optimizer": False},
        "ZeRO-Offload with a client provided optimizer",
        client_optimizer="AdamW",
    ),
    fault(
        "nvme-path",
        zero(3, offload_param=_NVME),
        {"zero_optimization.offload_param": _CPU},
        "nvme_path",
    ),
    fault(
        "nvme-path",
        zero(3, offload_optimizer=_NVME),
        {"zero_optimization.offload_optimizer": _CPU},
        "NoneType",
    ),
    fault(
        "zenflow-stage",
        zero(0, zenflow={"select_strategy": "step", "select_interval": 4, "update_interval": 2}),
        {"zero_optimization.zenflow": DROP},
        "no attribute 'reduce_gradients'",
    ),
    fault(
        "zenflow-offload",
        zero(2, zenflow={"topk_ratio": 0.1}),
        {"zero_optimization.zenflow": DROP},
        "must be used with cpu offload",
    ),
    fault(
        "zenflow-offload",
        zero(2, offload_optimizer=_CPU, zenflow={"offload": True}),
        {"zero_optimization.zenflow": DROP},
        "should be used with overlap_comm",
    ),
    fault(
        "zenflow-interval",
        zero(2, offload_optimizer=_CPU, zenflow={"select_interval": 4}),
        {"zero_optimization.zenflow": DROP},
        "auto select strategy",
    ),
    fault(
        "zenflow-interval",
        zero(
            2,
            offload_optimizer=_CPU,
            zenflow={"select_strategy": "step", "select_interval": 2, "update_interval": 4},
        ),
        {"zero_optimization.zenflow": DROP},
        "greater or equal to update interval",
    ),
    fault(
        "zenflow-optimizer",
        zero(2, offload_optimizer=_CPU, zenflow={"topk_ratio": 0.1}),
        {"zero_optimization.zenflow": DROP},
        "unexpected keyword argument 'torch_adam'",
    ),
)
