"""Lines of tests/data, as trials of the product's own evaluator."""

import csv
from collections.abc import Mapping
from typing import Any

from autotune.ds_config.build import build_ds_config
from autotune.evaluate import TrialRequest
from autotune.job.model_shape import shape_from_hf_config
from autotune.job.workload import Workload
from tests.predict.rows import DATA, SIZES, _ds_config

Line = Mapping[str, str]


def lines(name: str) -> list[Line]:
    """Return the lines of a CSV file of tests/data."""
    with (DATA / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def workload_of(line: Line) -> Workload:
    """Return the workload of a line."""
    config: dict[str, Any] = {name: int(line[name]) for name in SIZES}
    config |= {"model_type": "llama", "max_position_embeddings": 4_096}
    config |= {"tie_word_embeddings": False}
    ranks = int(line["world_size"])
    return Workload(
        model=shape_from_hf_config(config, name=line["shape"], where=line["shape"]),
        seq_len=int(line["seq_len"]),
        global_batch_size=ranks * int(line["micro_batch"]) * int(line.get("grad_accum") or 1),
        world_size=ranks,
        precision="bf16",
        optimizer={"type": "AdamW", "params": {"lr": 1e-4}},
        gradient_clipping=1.0,
    )


def request_of(label: str, line: Line, workload: Workload) -> TrialRequest:
    """Return the trial of a line."""
    base = _ds_config(dict(line), int(line.get("grad_accum") or 1))
    return TrialRequest(
        number=0,
        label=label,
        ds_config=build_ds_config(base, workload, {}),
        model_settings={
            "activation_checkpointing": line["activation_checkpointing"] == "1",
            "attn_implementation": "sdpa",
        },
    )
