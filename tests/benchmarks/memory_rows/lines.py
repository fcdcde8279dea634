"""A row as a line of the CSV: the job in columns, and back from them."""

import csv
import json
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from autotune.job.ceiling import GIB
from tests.benchmarks.memory_rows.spec import Spec

# The columns of tests/data/h200_memory.csv, in its order.
_OLD_COLUMNS = (
    "row_id",
    "shape",
    "params",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "world_size",
    "emulated",
    "zero_stage",
    "micro_batch",
    "seq_len",
    "grad_accum",
    "activation_checkpointing",
    "offload",
    "zero_extra",
    "init_allocated_gib",
    "init_peak_reserved_gib",
    "after_first_backward_allocated_gib",
    "peak_allocated_gib",
    "peak_reserved_gib",
    "alloc_retries",
    "driver_used_gib",
    "host_rss_gib",
    "step_s",
    "status",
)
_NEW_COLUMNS = (
    "topic",
    "model_type",
    "precision",
    "grad_accum_dtype",
    "optimizer",
    "attn_implementation",
    "tie_word_embeddings",
    "num_experts",
    "experts_per_token",
    "frozen",
    "trainable_parameters",
    "devices_per_node",
    "hf_config",
    "ds_config",
    "outside_gib",
    "outside_at_start_gib",
    "retries_by_step",
    "row_s",
    "versions",
    "message",
)
COLUMNS = _OLD_COLUMNS + _NEW_COLUMNS


def describe(spec: Spec, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's line before it has run: the job, and nothing measured."""
    import deepspeed
    import torch
    import transformers

    heads = config.get("num_attention_heads", config.get("n_head"))
    hidden = config.get("hidden_size", config.get("n_embd"))
    versions = {module.__name__: module.__version__ for module in (torch, transformers, deepspeed)}
    return dict.fromkeys(COLUMNS, "") | {
        "row_id": spec.name,
        "shape": spec.model,
        "hidden_size": hidden,
        "intermediate_size": config.get("intermediate_size", config.get("ffn_dim", 4 * hidden)),
        "num_hidden_layers": config.get("num_hidden_layers", config.get("n_layer")),
        "num_attention_heads": heads,
        "num_key_value_heads": config.get("num_key_value_heads", heads),
        "vocab_size": config["vocab_size"],
        "world_size": spec.ranks,
        "emulated": 1,
        "zero_stage": spec.stage,
        "micro_batch": spec.micro_batch,
        "seq_len": spec.seq_len,
        "grad_accum": spec.accumulation,
        "activation_checkpointing": int(spec.checkpointing),
        "offload": "optimizer_cpu" if spec.offload else "none",
        "zero_extra": json.dumps(dict(spec.zero)) if spec.zero else "",
        "topic": spec.topic,
        "model_type": config["model_type"],
        "precision": spec.precision,
        "grad_accum_dtype": spec.extra.get("data_types", {}).get("grad_accum_dtype", ""),
        "optimizer": json.dumps(spec.optimizer),
        "attn_implementation": spec.attention,
        "tie_word_embeddings": int(
            config.get("tie_word_embeddings", config["model_type"] == "gpt2")
        ),
        "num_experts": config.get("num_local_experts", ""),
        "experts_per_token": config.get("num_experts_per_tok", ""),
        "frozen": spec.frozen,
        "devices_per_node": spec.devices_per_node,
        "hf_config": json.dumps(config),
        "ds_config": json.dumps(spec.ds_config),
        "versions": json.dumps(versions),
    }


def read_job(line: Mapping[str, Any]) -> Any:
    """Rebuild what the memory model reads, from a line's columns alone."""
    from autotune.job.model_shape import shape_from_hf_config
    from autotune.job.workload import Workload
    from autotune.predict.training_job import ModelSettings, read_training

    config, ds_config = json.loads(line["hf_config"]), json.loads(line["ds_config"])
    ranks, name = int(line["world_size"]), str(line["row_id"])
    sequences = int(line["micro_batch"]) * int(line["grad_accum"])
    workload = Workload(
        model=shape_from_hf_config(config, name=str(line["shape"]), where=name),
        seq_len=int(line["seq_len"]),
        global_batch_size=ranks * sequences,
        world_size=ranks,
        precision=str(line["precision"]),
        optimizer=ds_config["optimizer"],
        gradient_clipping=1.0,
    )
    trainable = int(line["trainable_parameters"]) if line["frozen"] else None
    settings = ModelSettings(
        activation_checkpointing=str(line["activation_checkpointing"]) == "1",
        attn_implementation=str(line["attn_implementation"]),
        trainable_parameters=trainable,
        trained_on_top=line["frozen"] == "on_top",
    )
    return read_training(ds_config, workload, settings)


def predict(line: Mapping[str, Any], gpu_type: str) -> Any:
    """Return the model's estimate for a line's job."""
    from autotune.job.device import find_device
    from autotune.predict.memory.predict import Surroundings, predict_memory

    surroundings = Surroundings(device=find_device(gpu_type), emulated=True)
    return predict_memory(read_job(line), surroundings)


def open_writer(file: TextIO, columns: Sequence[str]) -> "csv.DictWriter[str]":
    """Write the header at once; other keys than the columns are left out."""
    writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    file.flush()
    return writer


def gib(num_bytes: int) -> str:
    """Return bytes as the CSV writes them."""
    return f"{num_bytes / GIB:.3f}"
