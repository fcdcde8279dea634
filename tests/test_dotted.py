from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune import dotted

_keys = st.text("abc", min_size=1, max_size=2)
_leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.lists(st.integers(), max_size=2))
_nested = st.recursive(
    st.dictionaries(_keys, _leaves, max_size=3),
    lambda inner: st.dictionaries(_keys, st.one_of(_leaves, inner), max_size=3),
    max_leaves=8,
)


@given(_nested)
def test_flattening_and_setting_give_the_mapping_back(nested: dict[str, Any]) -> None:
    assert dotted.updated({}, dotted.flatten(nested)) == nested


@given(_nested)
def test_every_leaf_is_found_under_its_dotted_key(nested: dict[str, Any]) -> None:
    for key, value in dotted.flatten(nested).items():
        assert dotted.get(nested, key, "missing") == value


@given(_nested, _keys)
def test_a_copy_shares_no_section_with_its_original(nested: dict[str, Any], key: str) -> None:
    before = dotted.flatten(nested)
    copy = dotted.updated(nested, {f"{key}.new.deep": 1})
    assert dotted.get(copy, f"{key}.new.deep") == 1
    assert dotted.flatten(nested) == before


@given(_nested, st.data())
def test_what_is_left_out_is_gone_and_nothing_else(
    nested: dict[str, Any], data: st.DataObject
) -> None:
    flat = dotted.flatten(nested)
    dropped = data.draw(st.sets(st.sampled_from(sorted(flat)))) if flat else set()
    left = dotted.flatten(dotted.without(nested, frozenset(dropped)))
    assert left == {key: value for key, value in flat.items() if key not in dropped}


def test_a_whole_section_can_be_left_out() -> None:
    assert dotted.without({"a": {"b": {"c": 1}}, "d": 2}, frozenset({"a.b"})) == {"d": 2}
    assert dotted.without({"a": {"b": 1}, "d": 2}, frozenset({"a"})) == {"d": 2}


def test_a_value_in_the_way_of_a_path_is_replaced() -> None:
    assert dotted.updated({"a": 1}, {"a.b": 2}) == {"a": {"b": 2}}


@pytest.mark.parametrize("key", ["x", "a.x", "a.b.c", "a.b.c.d"])
def test_a_missing_path_gives_the_default(key: str) -> None:
    assert dotted.get({"a": {"b": 1}}, key, "default") == "default"


def test_an_empty_section_is_a_leaf() -> None:
    assert dotted.flatten({"zero_optimization": {}}) == {"zero_optimization": {}}
