"""Kinds of values are those that pydantic distinguishes."""

import math
from typing import Any

import pytest

from autotune.ds_config.fields.kind import PROBES, Kind, bool_in, kind_of, number_in
from autotune.ds_config.fields.parser_probe import refused_kinds


@pytest.mark.parametrize("kind", Kind)
def test_a_probe_is_of_its_kind(kind: Kind) -> None:
    assert {kind_of(value) for value in PROBES[kind]} == {kind}
    assert kind.phrase


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (5e8, Kind.WHOLE),
        (9.2e18, Kind.WHOLE),
        (9.3e18, Kind.HUGE),
        (10**30, Kind.INTEGER),
        (math.nan, Kind.NOT_FINITE),
        (1.0, Kind.BIT),
        ("Yes", Kind.BOOL_TEXT),
        (" 5 ", Kind.INTEGER_TEXT),
        ("5.0", Kind.INTEGER_TEXT),
        ("5e8", Kind.NUMBER_TEXT),
        ("٣", Kind.TEXT),
        ("nan", Kind.TEXT),
        ((), Kind.TEXTS),
        (object(), Kind.TEXT),
    ],
)
def test_values_have_their_kind(value: object, kind: Kind) -> None:
    assert kind_of(value) is kind


@pytest.mark.parametrize(
    ("text", "number"),
    [("5_000", 5000), ("+5", 5), ("-0.5", -0.5), ("5.", 5.0), ("1,000", None), ("inf", None)],
)
def test_numbers_are_read_from_strings(text: str, number: float | None) -> None:
    assert number_in(text) == number


def test_booleans_are_read_from_strings() -> None:
    assert [bool_in(word) for word in ("On", "1", "NO", " true")] == [True, True, False, None]


def test_a_kind_is_refused_only_if_all_its_probes_are_in_all_settings() -> None:
    def accepts(config: dict[str, Any]) -> bool:
        zero = config["zero_optimization"]
        # What goes with stage 3 only is no matter of the field's type.
        return zero["ratio"] in (1, True) or (zero["ratio"] == 0.5 and zero["stage"] == 3)

    refused = refused_kinds("zero_optimization.ratio", {"maximum": 1}, accepts)
    assert {Kind.BIT, Kind.BOOL, Kind.FRACTION}.isdisjoint(refused)
    assert {Kind.NULL, Kind.INTEGER, Kind.TEXT, "limit"} <= set(refused)
