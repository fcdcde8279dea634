"""The keys that a study may search, and their values."""

from collections.abc import Mapping

from autotune.ds_config.fields.table import Field, field_of, known_fields, nearest

ATTENTIONS = ("eager", "sdpa", "flash_attention_2")
MODEL_FIELDS: Mapping[str, Field] = {
    field.key: field
    for field in (
        Field(key="model.activation_checkpointing", type="bool", default=False),
        Field(
            key="model.attn_implementation",
            type="str",
            default="sdpa",
            choices=ATTENTIONS,
        ),
    )
}
"""Settings of the model, for which a ds_config has no key."""

_NUMERICS = "changes what is trained, not how fast: it belongs to the workload"
_PRECISION = "the precision belongs to the workload; use --precision"
_BATCH = "the global batch belongs to the workload; use --global-batch-size"
_LAYOUT = "the layout of the ranks is fixed; search within one layout"
_WATCHES = "only monitors a run; set it in the base config"
_CHECKPOINTS = "acts on checkpoints only, which no trial writes; set it in the base config"
_REFUSED: Mapping[str, str] = {
    "train_batch_size": _BATCH,
    "gradient_accumulation_steps": (
        "follows from the global batch and train_micro_batch_size_per_gpu; search that"
    ),
    "managed_gradient_accumulation": "trials need DeepSpeed's managed accumulation; leave it out",
    "bf16": _PRECISION,
    "fp16": _PRECISION,
    "torch_autocast": _PRECISION,
    "data_types": _PRECISION,
    "optimizer": _NUMERICS,
    "scheduler": _NUMERICS,
    "gradient_clipping": _NUMERICS,
    "gradient_allreduce_op": _NUMERICS,
    "zero_allow_untested_optimizer": _NUMERICS,
    "zero_force_ds_cpu_optimizer": _NUMERICS,
    "data_efficiency": _NUMERICS,
    "dataloader_drop_last": _NUMERICS,
    "weight_quantization": _NUMERICS,
    "hybrid_engine": _NUMERICS,
    "vocabulary_size": "DeepSpeed reads it for a warning only; leave it out",
    "sequence_parallel_size": _LAYOUT,
    "data_parallel_size": _LAYOUT,
    "tensor_parallel": _LAYOUT,
    "expert_parallel": _LAYOUT,
    "use_data_before_expert_parallelism": _LAYOUT,
    "pipeline": _LAYOUT,
    "activation_checkpointing": (
        "DeepSpeed's engine never reads this section; search model.activation_checkpointing"
    ),
    "autotuning": "is DeepSpeed's autotuner; leave it out",
    **dict.fromkeys(
        (
            "tensorboard",
            "wandb",
            "csv_monitor",
            "comet",
            "comms_logger",
            "flops_profiler",
            "steps_per_print",
            "wall_clock_breakdown",
            "memory_breakdown",
            "dump_state",
            "log_level",
        ),
        _WATCHES,
    ),
    **dict.fromkeys(
        (
            "checkpoint",
            "datastates_ckpt",
            "zero_optimization.elastic_checkpoint",
            "zero_optimization.load_from_fp32_weights",
            "zero_optimization.legacy_stage1",
            "zero_optimization.pipeline_loading_checkpoint",
            "zero_optimization.stage3_gather_16bit_weights_on_model_save",
        ),
        _CHECKPOINTS,
    ),
}
"""Fields and whole sections that a study may not change, and why."""


def searchable_field(key: str) -> Field | None:
    """Return the field of a key that a space may name, by any of its names; None if unknown."""
    return MODEL_FIELDS.get(key) or field_of(key)


def refusal(field: Field) -> str | None:
    """Return why a known field may not be searched, with a suggestion; None if it may."""
    if field.removed:
        return f"DeepSpeed no longer has it: {field.removed}"
    if field.deprecated:
        return f"deprecated; use {field.successor}"
    parts = field.key.split(".")
    for length in range(len(parts), 0, -1):
        reason = _REFUSED.get(".".join(parts[:length]))
        if reason:
            return reason
    if field.type in ("section", "dict", "list") or field.open:
        inside = [key for key in known_fields() if key.startswith(f"{field.key}.")]
        if inside:
            return f"a section, not a key; name a key in it, such as {inside[0]}"
        return f"takes a {field.type}, which cannot be searched; set it in the base config"
    return None


def suggestion(key: str) -> str:
    """Return the nearest known keys for an unknown one, and where the known ones are listed."""
    if key.startswith("model."):
        return f"the model settings are {' and '.join(MODEL_FIELDS)}"
    near = nearest(key)
    listing = "every known key: python -m autotune.ds_config.fields.table"
    return f"did you mean {' or '.join(near)}? {listing}" if near else listing


def value_fault(field: Field, value: object) -> str | None:
    """Return the rule that a value breaks; None if DeepSpeed accepts it for this field."""
    if value is None:
        return "null cannot be searched"
    if not _has_type(field, value):
        return f"must be of type {field.type}"
    return field.limit_fault(value)


def _has_type(field: Field, value: object) -> bool:
    if field.type == "bool":
        return isinstance(value, bool)
    if field.type == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if field.type == "float":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if field.type == "str":
        return isinstance(value, str)
    return isinstance(value, bool | int | float | str)
