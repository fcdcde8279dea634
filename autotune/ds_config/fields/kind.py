"""Kinds of values that DeepSpeed's parser distinguishes."""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

_BOOL_WORDS = frozenset(("true", "yes", "on", "t", "y", "false", "no", "off", "f", "n"))
_LARGEST_WHOLE = 2**63


class Kind(StrEnum):
    """What a value is; the values are the names in the table."""

    NULL = "null"
    BOOL = "bool"
    BIT = "bit"
    """0 or 1, as an integer or a float."""
    INTEGER = "int"
    WHOLE = "whole"
    """A float without a fraction that pydantic accepts as an integer."""
    HUGE = "huge"
    """A whole float of 2**63 or more, which pydantic does not accept as an integer."""
    FRACTION = "fraction"
    NOT_FINITE = "not-finite"
    BIT_TEXT = "bit-text"
    """ "0" or "1"."""
    INTEGER_TEXT = "int-text"
    NUMBER_TEXT = "number-text"
    """A number as a string that pydantic does not read as an integer, such as "5e8"."""
    BOOL_TEXT = "bool-text"
    EMPTY = "empty"
    """The empty string."""
    TEXT = "text"
    TEXTS = "texts"
    """A list of strings, or an empty one."""
    OTHERS = "others"
    """A list with values other than strings."""
    SECTION = "section"

    @property
    def phrase(self) -> str:
        """The name of a value of the kind in a sentence."""
        return _PHRASES[self]


_PHRASES = {
    Kind.NULL: "null",
    Kind.BOOL: "a boolean",
    Kind.BIT: "a number",
    Kind.INTEGER: "a number",
    Kind.WHOLE: "a number",
    Kind.HUGE: "a float too large for one",
    Kind.FRACTION: "a number with a fraction",
    Kind.NOT_FINITE: "not finite",
    Kind.BIT_TEXT: "a string",
    Kind.INTEGER_TEXT: "a string",
    Kind.NUMBER_TEXT: "a string",
    Kind.BOOL_TEXT: "a string",
    Kind.EMPTY: "an empty string",
    Kind.TEXT: "a string",
    Kind.TEXTS: "a list",
    Kind.OTHERS: "a list",
    Kind.SECTION: "a section",
}

PROBES: Mapping[Kind, tuple[Any, ...]] = {
    Kind.NULL: (None,),
    Kind.BOOL: (True, False),
    Kind.BIT: (0, 1),
    Kind.INTEGER: (2, 8),
    Kind.WHOLE: (2.0, 8.0),
    Kind.HUGE: (1e300,),
    Kind.FRACTION: (0.5, 1.5),
    Kind.NOT_FINITE: (math.inf,),
    Kind.BIT_TEXT: ("0", "1"),
    Kind.INTEGER_TEXT: ("2", "8"),
    Kind.NUMBER_TEXT: ("0.5", "1.5"),
    Kind.BOOL_TEXT: ("true", "false"),
    Kind.EMPTY: ("",),
    Kind.TEXT: ("autotune",),
    Kind.TEXTS: ([], ["autotune"]),
    Kind.OTHERS: ([1],),
    Kind.SECTION: ({},),
}
"""Values of each kind; several where a limit may refuse one of them for another reason."""


def kind_of(value: Any) -> Kind:
    """Return the kind of a value.

    Example:
        >>> [kind_of(value).value for value in (5e8, "5", "5e8", [1])]
        ['whole', 'int-text', 'number-text', 'others']
    """
    if value is None:
        return Kind.NULL
    if isinstance(value, bool):
        return Kind.BOOL
    if isinstance(value, str):
        return _kind_of_text(value)
    if isinstance(value, int | float):
        return _kind_of_number(value)
    if isinstance(value, Mapping):
        return Kind.SECTION
    if isinstance(value, list | tuple):
        return Kind.TEXTS if all(isinstance(item, str) for item in value) else Kind.OTHERS
    return Kind.TEXT


def _kind_of_number(value: float) -> Kind:
    if value in (0, 1):
        return Kind.BIT
    if isinstance(value, int):
        return Kind.INTEGER
    if not math.isfinite(value):
        return Kind.NOT_FINITE
    if not value.is_integer():
        return Kind.FRACTION
    return Kind.WHOLE if abs(value) < _LARGEST_WHOLE else Kind.HUGE


def _kind_of_text(text: str) -> Kind:
    if not text:
        return Kind.EMPTY
    if text in ("0", "1"):
        return Kind.BIT_TEXT
    if text.lower() in _BOOL_WORDS:
        return Kind.BOOL_TEXT
    number = number_in(text)
    if number is None:
        return Kind.TEXT
    return Kind.INTEGER_TEXT if isinstance(number, int) else Kind.NUMBER_TEXT


def number_in(text: str) -> int | float | None:
    """Return the number that a string spells; an int where pydantic reads an integer.

    Example:
        >>> [number_in(text) for text in ("5", "5.0", "5e8", "five")]
        [5, 5, 500000000.0, None]
    """
    text = text.strip()
    if not text.isascii():
        return None
    whole, dot, zeros = text.partition(".")
    try:
        if not dot or (zeros and not zeros.strip("0")):
            return int(whole)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def bool_in(text: str) -> bool | None:
    """Return the boolean that a string spells, as pydantic reads it.

    Example:
        >>> [bool_in(text) for text in ("True", "off", "maybe")]
        [True, False, None]
    """
    word = text.lower()
    if word in _BOOL_WORDS or word in ("0", "1"):
        return word in ("true", "yes", "on", "t", "y", "1")
    return None
