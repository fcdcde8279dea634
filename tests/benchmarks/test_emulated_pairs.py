"""Pairs that were run, and what the README says of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.emulated_pairs import PAIRS, errors, print_table, workload_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    text = (ROOT / "tests/data/h200_x2_pairs.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_an_emulated_rank_allocates_what_a_real_one_does(rows: list[dict[str, Any]]) -> None:
    found = errors(rows)
    assert len(found) == 3
    assert all(abs(error["allocated"]) < 1e-5 for error in found)
    assert all(abs(error["reserved"]) < 0.01 for error in found)


def test_the_readme_has_the_speeds(rows: list[dict[str, Any]]) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    for error in errors(rows):
        percent = 100 * error["tokens_per_s"]
        told = f"{percent:+.0f} %" if abs(percent) > 10 else f"{percent:+.1f} %"
        assert told in text, (error["pair"], told)


def test_the_table_is_markdown(
    rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(rows)
    out = capsys.readouterr().out.splitlines()
    assert [line.count("|") for line in out[:5]] == [9, 9, 8, 8, 8]
    assert out[5].startswith("allocated: 3 pairs, median 0.00%")


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_s_global_batch_is_its_own(pair: Any) -> None:
    workload = workload_of(pair, 4)
    assert workload.global_batch_size == 4 * pair.micro_batch * pair.accumulation
