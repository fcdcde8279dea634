"""`--fix` applies safe fixes and nothing else."""

import json
from pathlib import Path

import pytest

from autotune.errors import GateError
from autotune.gating import gate
from autotune.gating.fixes.fix import Fixed, _edited_or_none, fix_config
from autotune.gating.inputs import read_subject
from autotune.lint.finding import Verdict
from tests.asked import gate_request

TEXT = """{
  "train_micro_batch_size_per_gpu": 1, // per GPU
  "zero_optimization": {
    "stage": 2,
    "reduce_bucket_syze": 5e8,
    "cpu_offload": false
  }
}
"""


def _fixed(text: str, *, name: str = "ds_config.json", rewrite: bool = False) -> Fixed:
    return fix_config(gate_request(ds_config=name), text.encode(), rewrite=rewrite)


def test_safe_fixes_are_applied_and_comments_stay() -> None:
    fixed = _fixed(TEXT)
    assert fixed.after == TEXT.replace("syze", "size").replace(',\n    "cpu_offload": false', "")
    assert not fixed.loses_comments
    assert {finding.rule for finding in fixed.fixed} == {"unknown-key", "deprecated"}


def test_the_fixed_config_passes_and_is_not_fixed_again() -> None:
    fixed = _fixed(TEXT)
    assert _fixed(fixed.after).after == fixed.after
    assert _fixed(fixed.after).diff == ""
    request = gate_request(ds_config="ds_config.json")
    assert gate(request, text=TEXT.encode()).verdict is Verdict.ERROR
    assert gate(request, text=fixed.after.encode()).verdict is not Verdict.ERROR


def test_the_difference_is_a_unified_diff() -> None:
    lines = _fixed(TEXT).diff.splitlines()
    assert lines[:2] == ["--- ds_config.json", "+++ ds_config.json (fixed)"]
    assert '-    "reduce_bucket_syze": 5e8,' in lines
    assert '+    "reduce_bucket_size": 5e8' in lines


def test_a_file_without_a_last_line_break_keeps_the_diff_readable() -> None:
    diff = _fixed(TEXT.rstrip("\n")).diff
    assert diff.endswith("\n")
    assert "}-" not in diff


def test_ignored_findings_and_findings_without_a_fix_stay() -> None:
    request = gate_request(ds_config="c.json", ignore=frozenset({"unknown-key"}))
    fixed = fix_config(request, TEXT.encode())
    assert "reduce_bucket_syze" in fixed.after
    undecidable = '{"train_batch_size": "many"}'
    assert _fixed(undecidable).after == undecidable


def test_real_hjson_is_refused_and_can_be_rewritten() -> None:
    hjson = TEXT.replace('"stage"', "stage")
    with pytest.raises(GateError, match=r"comments and formatting would be lost; .*--fix-output"):
        _fixed(hjson)
    fixed = _fixed(hjson, rewrite=True)
    assert fixed.loses_comments
    assert json.loads(fixed.after) == {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8},
    }


def test_a_text_that_cannot_be_read_is_unchanged() -> None:
    broken = '{"train_batch_size": [1'
    assert _fixed(broken).after == broken


def test_an_accelerate_yaml_is_unchanged() -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"
    assert _fixed(text, name="accelerate.yaml").after == text


def test_an_edit_that_does_not_read_back_is_discarded() -> None:
    """A config inside another file: a new key would be written outside of it."""
    text = '{"deepspeed": {"train_batch_size": 8}, "model": "x"}'
    document = read_subject(text.encode(), gate_request(ds_config="train.json"))
    assert document.subject is not None
    assert document.subject.config == {"train_batch_size": 8}
    wanted = {"train_batch_size": 8, "steps_per_print": 1}
    assert _edited_or_none(text, wanted, document) is None


def test_every_fix_of_the_cases_removes_its_own_finding() -> None:
    """After a fix its finding is gone and no new error appears, for every rule."""
    folders = sorted((Path(__file__).parents[2] / "cases").glob("*/ds_config.json"))
    assert len(folders) > 40
    num_fixed = 0
    for path in folders:
        request = gate_request(ds_config=str(path))
        text = path.read_bytes()
        fixed = fix_config(request, text, rewrite=True)
        before = {(f.rule, f.field) for f in gate(request, text=text).findings}
        after = gate(request, text=fixed.after.encode()).findings
        applied = {(f.rule, f.field) for f in fixed.fixed}
        assert not applied & {(f.rule, f.field) for f in after if f.fix is not None}, path
        new = {(f.rule, f.field) for f in after if f.severity == "error"} - before
        assert new == set(), path
        num_fixed += len(applied)
    assert num_fixed > 10
