"""Rows of tests/data/h200_memory.csv, run again by the product's own emulated evaluator.

One H200, nobody else on it; two minutes at most, and as long again when DeepSpeed's ops are
compiled first.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.evaluate.emulated import EmulatedEvaluator
from autotune.job.ceiling import GIB
from autotune.pool.pool import Pool
from autotune.study.outcome import Phase, Status
from tests.gpu.rows import Line, lines, request_of, workload_of

pytestmark = [pytest.mark.gpu, pytest.mark.ray]

ROWS = ("r003", "r021", "r045", "r046", "r047", "r056", "r062", "r016", "r075", "r083")
"""Stages 1 to 3; 160M to 7B; 1, 2, 8 and 64 ranks; offload of the optimizer and of parameters;
checkpointing, accumulation and bucket sizes. All rows are of rank 0; those of stage 2 are some
where the fattest rank, which is played, holds as much."""
TOLERANCE = 0.01


@pytest.fixture(scope="module")
def evaluate(
    emulating_pool: Pool, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Line], Any]:
    folder: Path = tmp_path_factory.mktemp("study")

    def run(line: Line) -> Any:
        workload = workload_of(line)
        evaluator = EmulatedEvaluator(
            pool=emulating_pool,
            workload=workload,
            ceiling_bytes=emulating_pool.device_bytes,
            gpus_per_node=8,
            seed=1,
            study_folder=folder,
            # The rows say nothing of the host that their ranks would share.
            node_host_bytes=1 << 42,
        )
        return evaluator.evaluate(request_of(line["row_id"], line, workload), lambda *_: None)

    return run


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_measured_again(evaluate: Callable[[Line], Any], name: str) -> None:
    line = next(line for line in lines("h200_memory.csv") if line["row_id"] == name)
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
