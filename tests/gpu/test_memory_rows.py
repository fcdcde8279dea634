"""Rows of tests/data/h200_memory.csv, run again by the product's own emulated evaluator.

One H200, nobody else on it; two minutes at most, and as long again when DeepSpeed's ops are
compiled first.
"""

import csv
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from autotune.ceiling import GIB
from autotune.ds_config.build import build_ds_config
from autotune.evaluate import TrialRequest
from autotune.evaluate.emulated import EmulatedEvaluator
from autotune.model_shape import shape_from_hf_config
from autotune.outcome import Phase, Status
from autotune.pool.pool import Pool, PoolRequest
from autotune.workload import Workload
from tests.predict.rows import DATA, _ds_config

pytestmark = [pytest.mark.gpu, pytest.mark.ray]

ROWS = ("r003", "r021", "r045", "r046", "r047", "r056", "r062", "r070", "r075", "r083")
"""Stages 1 to 3; 160M to 7B; 1, 2, 8 and 64 ranks; offload of the optimizer and of parameters;
checkpointing, accumulation and bucket sizes."""
TOLERANCE = 0.01
_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)

Line = Mapping[str, str]


def lines() -> dict[str, Line]:
    with (DATA / "h200_memory.csv").open(encoding="utf-8") as file:
        return {line["row_id"]: line for line in csv.DictReader(file)}


def workload_of(line: Line) -> Workload:
    config: dict[str, Any] = {name: int(line[name]) for name in _SIZES}
    config |= {"model_type": "llama", "max_position_embeddings": 4_096}
    config |= {"tie_word_embeddings": False}
    ranks = int(line["world_size"])
    return Workload(
        model=shape_from_hf_config(config, name=line["shape"], where=line["row_id"]),
        seq_len=int(line["seq_len"]),
        global_batch_size=ranks * int(line["micro_batch"]) * int(line["grad_accum"]),
        world_size=ranks,
        precision="bf16",
        optimizer={"type": "AdamW", "params": {"lr": 1e-4}},
        gradient_clipping=1.0,
    )


def request_of(line: Line, workload: Workload) -> TrialRequest:
    base = _ds_config(dict(line), int(line["grad_accum"]))
    return TrialRequest(
        number=0,
        label=line["row_id"],
        ds_config=build_ds_config(base, workload, {}),
        model_settings={
            "activation_checkpointing": line["activation_checkpointing"] == "1",
            "attn_implementation": "sdpa",
        },
    )


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    request = PoolRequest(world_size=64, device_kind="cuda", model_type="llama", emulate=True)
    with Pool(request) as pool:
        pool.build_ops(("fused_adam", "cpu_adam"), on_note=print)
        yield pool


@pytest.fixture(scope="module")
def evaluate(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Line], Any]:
    folder: Path = tmp_path_factory.mktemp("study")

    def run(line: Line) -> Any:
        workload = workload_of(line)
        evaluator = EmulatedEvaluator(
            pool=pool,
            workload=workload,
            ceiling_bytes=pool.device_bytes,
            gpus_per_node=8,
            seed=1,
            study_folder=folder,
            # The rows say nothing of the host that their ranks would share.
            node_host_bytes=1 << 42,
        )
        return evaluator.evaluate(request_of(line, workload), lambda *_: None)

    return run


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_measured_again(evaluate: Callable[[Line], Any], name: str) -> None:
    line = lines()[name]
    outcome = evaluate(line)
    assert outcome.status is Status.COMPLETE, outcome.failure
    steps = (Phase.FIRST_STEP, Phase.STEADY)
    found = max(
        memory.allocated_bytes or 0
        for memory in outcome.measured.ranks[0].memory
        if memory.phase in steps
    )
    before = float(line["peak_allocated_gib"])
    sys.stdout.write(
        f"{name}: {found / GIB:.3f} GiB, before {before}, {outcome.duration_s:.1f} s\n"
    )
    assert found / GIB == pytest.approx(before, rel=TOLERANCE)
