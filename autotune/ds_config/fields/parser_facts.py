"""Facts about fields that cannot be read from DeepSpeed's parser."""

from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]

# Sections that DeepSpeed enters only when the config has them: `Recorder` must claim to have them.
SECTIONS = frozenset(
    (
        "activation_checkpointing",
        "aio",
        "autotuning",
        "checkpoint",
        "curriculum_learning",
        "data_efficiency",
        "data_routing",
        "data_sampling",
        "data_types",
        "dynamic_batching",
        "expert_parallel",
        "flops_profiler",
        "model_info",
        "parallel_write",
        "random_ltd",
        "torch_autocast",
        "writer",
    )
)
# Sections that belong to a pydantic model, by the model's path in DeepSpeed.
MODELS = {
    "zero_optimization": "deepspeed.runtime.zero.config.DeepSpeedZeroConfig",
    "bf16": "deepspeed.runtime.precision_config.DeepSpeedBF16Config",
    "fp16": "deepspeed.runtime.precision_config.DeepSpeedFP16Config",
    "comms_logger": "deepspeed.comm.config.CommsLoggerConfig",
    "tensorboard": "deepspeed.monitor.config.TensorBoardConfig",
    "wandb": "deepspeed.monitor.config.WandbConfig",
    "csv_monitor": "deepspeed.monitor.config.CSVConfig",
    "comet": "deepspeed.monitor.config.CometConfig",
    "hybrid_engine": "deepspeed.runtime.config.HybridEngineConfig",
    "compile": "deepspeed.compile.config.CompileConfig",
    "timers.throughput": "deepspeed.utils.config.DeepSpeedThroughputTimerConfig",
    "tensor_parallel": "deepspeed.runtime.tensor_parallel.config.TPTrainingConfig",
    "weight_quantization": "deepspeed.inference.config.WeightQuantConfig",
}
COMMUNICATION_DTYPE: Record = {"type": "str", "choices": ["fp16", "bf16", "fp32"], "any_case": True}
DTYPE: Record = {"type": "str", "choices": "DtypeEnum"}
"""Replaced by the names that DeepSpeed's enum of that name accepts."""

# Facts that the default of a plain key does not show: the type of a key whose default is None, a
# key that is read outside the parser, a section with free keys, the allowed values.
PLAIN: dict[str, Record] = {
    "train_batch_size": {"type": "int", "minimum": 1},
    "train_micro_batch_size_per_gpu": {"type": "int", "minimum": 1},
    "gradient_accumulation_steps": {"type": "int", "minimum": 1},
    "steps_per_print": {"type": "int"},
    "gradient_allreduce_op": {"type": "str", "choices": ["mean", "sum"], "any_case": True},
    "communication_data_type": COMMUNICATION_DTYPE,
    "seq_parallel_communication_data_type": COMMUNICATION_DTYPE,
    "log_level": {"type": "str"},
    "optimizer": {"type": "section"},
    "optimizer.type": {"type": "str"},
    "optimizer.params": {"type": "dict", "open": True, "default": {}},
    "optimizer.legacy_fusion": {"type": "bool", "default": False},
    "scheduler": {"type": "section"},
    "scheduler.type": {"type": "str"},
    "scheduler.params": {"type": "dict", "open": True, "default": {}},
    "pipeline": {"type": "section", "open": True},
    "pipeline.stages": {"type": "any"},
    "timers": {"type": "section"},
    "autotuning.arg_mappings": {"type": "dict", "open": True},
    "autotuning.metric_path": {"type": "str"},
    "autotuning.model_info_path": {"type": "str"},
    "autotuning.max_train_batch_size": {"type": "int"},
    "autotuning.model_info.num_params": {"type": "int"},
    "autotuning.model_info.hidden_size": {"type": "int"},
    "autotuning.model_info.num_layers": {"type": "int"},
    # "auto", or what the model is
    "expert_parallel.top_k": {"type": "any"},
    "expert_parallel.routed_scaling_factor": {"type": "any"},
    # runtime/config.py: _do_warning_check
    "vocabulary_size": {"type": "int"},
    # deepspeed.initialize
    "sequence_parallel_size": {"type": "int", "minimum": 1},
    "data_parallel_size": {"type": "int", "minimum": 1},
    # runtime/zero/config.py: read_zero_config_deprecated, only with `"zero_optimization": true`
    "allgather_size": {
        "type": "int",
        "default": 500_000_000,
        "deprecated": True,
        "successor": "zero_optimization.allgather_bucket_size",
    },
    "datastates_ckpt": {"type": "dict", "open": True},
    "data_types.grad_accum_dtype": DTYPE,
    "data_types.param_dtype": DTYPE,
    "data_types.buffer_dtype": DTYPE,
    "data_types.keep_in_fp32_modules": {"type": "list"},
    "torch_autocast.dtype": DTYPE,
    "torch_autocast.lower_precision_safe_modules": {"type": "list"},
    "activation_checkpointing.number_checkpoints": {"type": "int"},
    "flops_profiler.output_file": {"type": "str"},
    "checkpoint.tag_validation": {
        "type": "str",
        "choices": ["WARN", "IGNORE", "FAIL"],
        "any_case": True,
    },
    "checkpoint.writer.type": {
        "type": "str",
        "choices": ["MOCK", "PYTHON", "FAST"],
        "any_case": True,
    },
    "checkpoint.writer.data_parallel": {
        "type": "str",
        "choices": ["REPLICA", "SOCKET", "MACHINE"],
        "any_case": True,
    },
    "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics": {
        "type": "dict",
        "open": True,
    },
    "data_efficiency.data_sampling.dynamic_batching": {"open": True},
    "data_efficiency.data_sampling.dynamic_batching.max_batch_size": {"type": "int"},
    "data_efficiency.data_sampling.dynamic_batching.max_tokens": {"type": "int"},
    "data_efficiency.data_routing.random_ltd": {"open": True},
    "expert_parallel.load_balance_coeff": {"type": "float"},
    # runtime/zenflow/zenflow_config.py: validate_fields
    "zero_optimization.zenflow.select_strategy": {"choices": ["auto", "step", "epoch"]},
    "zero_optimization.zenflow.update_interval": {"minimum": 1},
}
