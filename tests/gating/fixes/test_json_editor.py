"""Edits of a JSON text change nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.gating.fixes.json_editor import NotEditableError, edited

TEXT = """{
    // what we run since March
    "train_batch_size": 64,  # sixty-four
    "zero_optimization": {
        "stage": 3, "overlap_comm": true,
        "reduce_bucket_syze": 5e8
    },
    "betas": [0.9,0.95],
    "fp16": {},
}
"""
HELD: dict[str, Any] = {
    "train_batch_size": 64,
    "zero_optimization": {"stage": 3, "overlap_comm": True, "reduce_bucket_syze": 5e8},
    "betas": [0.9, 0.95],
    "fp16": {},
}


def _with(**changes: Any) -> dict[str, Any]:
    return {**HELD, **changes}


def test_a_key_is_renamed_where_it_stands() -> None:
    zero = {"stage": 3, "overlap_comm": True, "reduce_bucket_size": 5e8}
    assert edited(TEXT, HELD, _with(zero_optimization=zero)) == TEXT.replace("syze", "size")


def test_a_value_is_changed_where_it_stands() -> None:
    zero = HELD["zero_optimization"] | {"stage": 2}
    expected = TEXT.replace('"stage": 3', '"stage": 2')
    assert edited(TEXT, HELD, _with(zero_optimization=zero)) == expected


def test_true_and_one_are_two_values() -> None:
    zero = HELD["zero_optimization"] | {"overlap_comm": 1}
    expected = TEXT.replace("true", "1")
    assert edited(TEXT, HELD, _with(zero_optimization=zero)) == expected


def test_a_key_is_removed_with_its_line_comma_and_comment() -> None:
    after = {key: value for key, value in HELD.items() if key != "train_batch_size"}
    expected = TEXT.replace('    "train_batch_size": 64,  # sixty-four\n', "")
    assert edited(TEXT, HELD, after) == expected


def test_the_last_key_is_removed_with_the_comma_before_it() -> None:
    zero = {"stage": 3, "overlap_comm": True}
    expected = TEXT.replace(',\n        "reduce_bucket_syze": 5e8\n', "\n")
    assert edited(TEXT, HELD, _with(zero_optimization=zero)) == expected


def test_a_new_key_gets_a_line_like_its_neighbours() -> None:
    zero = HELD["zero_optimization"] | {"sub_group_size": 7}
    expected = TEXT.replace("5e8\n", '5e8,\n        "sub_group_size": 7\n')
    assert edited(TEXT, HELD, _with(zero_optimization=zero)) == expected


def test_a_new_section_is_indented_as_the_file_is() -> None:
    changed = edited(TEXT, HELD, _with(bf16={"enabled": True}))
    assert changed.endswith('"fp16": {},\n    "bf16": {\n        "enabled": true\n    }\n}\n')


def test_a_key_is_added_to_an_empty_section() -> None:
    changed = edited(TEXT, HELD, _with(fp16={"enabled": False}))
    assert '"fp16": {"enabled": false},' in changed


def test_windows_line_breaks_stay() -> None:
    text = TEXT.replace("\n", "\r\n")
    zero = {"stage": 2, "overlap_comm": True, "zenflow": {"topk_ratio": 0.1}}
    changed = edited(text, HELD, _with(zero_optimization=zero))
    assert changed.replace("\r\n", "").count("\n") == 0
    assert changed.replace("\r\n", "\n") == edited(TEXT, HELD, _with(zero_optimization=zero))
    after = {key: value for key, value in HELD.items() if key != "train_batch_size"}
    assert edited(text, HELD, after).replace("\r\n", "\n") == edited(TEXT, HELD, after)


@pytest.mark.parametrize(
    "text", ["{a: 1}", "{'a': 1}", '{"a": 1', "", "[1]", '{"a" 1}', '{"b": 1}'], ids=repr
)
def test_a_text_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(NotEditableError):
        edited(text, {"a": 1}, {"a": 2})


_keys = st.text("abc_", min_size=1, max_size=3)
_leaves = st.one_of(
    st.booleans(), st.integers(-5, 5), st.text('ab,"}/#\\', max_size=4), st.lists(st.integers(0, 3))
)
_configs = st.recursive(
    st.dictionaries(_keys, _leaves, max_size=4),
    lambda inner: st.dictionaries(_keys, st.one_of(_leaves, inner), max_size=4),
    max_leaves=12,
)


@given(_configs, _configs, st.sampled_from([None, 2, 4, "\t"]))
def test_any_edited_text_reads_back_as_the_new_config(
    before: dict[str, Any], after: dict[str, Any], indent: int | str | None
) -> None:
    text = json.dumps(before, indent=indent)
    assert json.loads(edited(text, before, after)) == after


@given(_configs)
def test_no_change_changes_nothing(config: dict[str, Any]) -> None:
    text = json.dumps(config, indent=3)
    assert edited(text, config, config) == text
