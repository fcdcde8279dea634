"""Pairs that were run, and what the README says of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.hardware import find_device
from autotune.predict.memory.predict import Surroundings, predict_memory
from autotune.predict.training import ModelSettings, read_training
from tests.benchmarks.emulated_pairs import PAIRS, errors, print_table, request, workload_of

ROOT = Path(__file__).parents[2]
FILES = {2: "h200_x2_pairs.jsonl", 4: "h200_x4_pairs.jsonl"}
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rows() -> dict[int, Rows]:
    """Return what ran, by the number of cards."""
    return {
        cards: [
            json.loads(line)
            for line in (ROOT / "tests/data" / name).read_text("utf-8").splitlines()
        ]
        for cards, name in FILES.items()
    }


@pytest.mark.parametrize(("cards", "number"), [(2, 3), (4, 13)])
def test_an_emulated_rank_allocates_what_a_real_one_does(
    rows: dict[int, Rows], cards: int, number: int
) -> None:
    found = errors(rows[cards])
    assert len(found) == number
    # They played rank 0; in the one at stage 2 that is not equal another one held a little more.
    assert all(abs(error["allocated"]) < 1e-3 for error in found)
    assert sum(abs(error["allocated"]) < 1e-4 for error in found) >= number - 1
    assert all(abs(error["reserved"]) < 0.02 for error in found)


@pytest.mark.parametrize(("cards", "number"), [(2, 10), (4, 13)])
def test_the_memory_model_is_right_on_every_real_rank(
    rows: dict[int, Rows], cards: int, number: int
) -> None:
    found = []
    for row in rows[cards]:
        if row["kind"] != "measured":
            continue
        pair = PAIRS[row["pair"]]
        workload = workload_of(pair, cards)
        settings = ModelSettings(
            activation_checkpointing=pair.checkpointing, attn_implementation="sdpa"
        )
        training = read_training(request(0, pair, workload).ds_config, workload, settings)
        bill = predict_memory(training, Surroundings(device=find_device("h200")))
        found.append(bill.device.peak_allocated_bytes / row["allocated_bytes"] - 1)
    assert len(found) == number
    assert max(map(abs, found)) < 1e-4


@pytest.mark.parametrize("cards", FILES)
def test_the_readme_has_the_table(
    rows: dict[int, Rows], cards: int, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(rows[cards])
    text = (ROOT / "README.md").read_text("utf-8")
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith("|")]
    rest = [line for line in lines if not line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert all(line in text for line in table)
    assert rest[0].startswith(f"allocated: {len(errors(rows[cards]))} pairs, median 0.00%")


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_s_global_batch_is_its_own(pair: Any) -> None:
    workload = workload_of(pair, 4)
    assert workload.global_batch_size == 4 * pair.micro_batch * pair.accumulation
