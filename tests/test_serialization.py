"""Dataclasses as JSON values and back."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import pytest

from autotune.serialization import Serializable


class _Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class _Pair:
    """A class with a form of its own."""

    left: int
    right: int

    def to_json(self) -> list[int]:
        return [self.left, self.right]

    @classmethod
    def from_json(cls, values: list[int]) -> Self:
        return cls(*values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inner(Serializable):
    colour: _Colour
    sizes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outer(Serializable):
    name: str
    whole: float = 0.0
    number: float | None = None
    inner: tuple[_Inner, ...] = ()
    pair: _Pair | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    by_colour: Mapping[_Colour, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lenient(Serializable):
    skips_unknown_keys = True

    name: str
    inner: _Inner | None = None


def test_everything_comes_back_through_json() -> None:
    value = _Outer(
        name="a",
        number=float("inf"),
        inner=(_Inner(colour=_Colour.RED, sizes=(1, 2.5)), _Inner(colour=_Colour.RED)),
        pair=_Pair(1, 2),
        config={"zero_optimization": {"stage": 3}, "list": [1, None]},
        by_colour={_Colour.RED: 1.5},
    )
    plain = value.to_json()
    assert plain["inner"] == [{"colour": "red", "sizes": [1, 2.5]}, {"colour": "red", "sizes": []}]
    assert type(plain["inner"][0]["colour"]) is str
    assert plain["pair"] == [1, 2]
    assert _Outer.from_json(json.loads(json.dumps(plain))) == value


def test_numbers_are_taken_as_they_are() -> None:
    text = '{"name": 1, "whole": 2, "number": 0, "inner": [{"colour": "red", "sizes": [0, 0.0]}]}'
    plain = _Outer.from_json(json.loads(text)).to_json()
    assert json.dumps(plain).startswith(text[:-1])


def test_a_missing_key_takes_the_default() -> None:
    assert _Outer.from_json({"name": "a"}) == _Outer(name="a")


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "name"),
        ({"name": "a", "newer": 1}, "newer"),
        ({"name": "a", "inner": [{"colour": "red", "newer": 1}]}, "newer"),
        ({"name": "a", "inner": [{"colour": "blue"}]}, "'blue' is not a valid _Colour"),
        ({"name": "a", "inner": [7]}, "int"),
    ],
)
def test_what_does_not_fit_is_an_error(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError, KeyError), match=message):
        _Outer.from_json(mapping)


def test_a_class_may_skip_unknown_keys_and_its_fields_may_not() -> None:
    assert _Lenient.from_json({"name": "a", "newer": 1}) == _Lenient(name="a")
    with pytest.raises(TypeError, match="newer"):
        _Lenient.from_json({"name": "a", "inner": {"colour": "red", "newer": 1}})


def test_cattrs_is_loaded_when_something_is_read_or_written() -> None:
    code = "import sys, autotune.study.view; print('cattrs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
