"""A value without quotes: what it was meant to be, and how it departs from JSON."""

import re
from dataclasses import dataclass
from typing import Any

from autotune.lint.document.syntax_faults import Slip

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?(?=[\s,}\]#/]|$)")
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+(?:[eE][-+]?\d+)?(?=\s*(?:[},#]|//|$)|[ \t]*[\r\n])")
_SPACED_NUMBER = re.compile(r"-?\d+(?:[ \t]+\d+)+(?=\s*(?:[,}\]#]|//|$)|[ \t]*[\r\n])")
_WORD = re.compile(r"[^\s,:{}\[\]#\"']+")
_TOKEN = re.compile(r"(?:(?!//|/\*)[^,{}\[\]\r\n#])*")
_KEY_AND_VALUE = re.compile(r"[\w.-]+:(?:\s|$)")
# ${x}, $x, {{ x }}, {% x %}, <x>, {x}, %(x)s and GLOBAL_BATCH_SIZE
_PLACEHOLDER = re.compile(
    r"\$\{[^}\n]*\}|\$\w+|\{\{.*?\}\}|\{%.*?%\}|<[^<>\n]+>|\{\w+\}|%\(\w+\)\w?"
    r"|[A-Z][A-Z0-9]*(?:_\w+)*(?=\s*(?:[,}\]]|$))"
)
_LOOSE_NUMBER = re.compile(
    r"[-+]?(?:0[xX][\da-fA-F]+|(?:\d[\d_ ]*(?:\.[\d_]*)?|\.\d+)(?:[eE][-+]?\d+)?)"
)
_INFINITE = (float("inf"), float("-inf"))
"""What json makes of 1e999, at which hjson 3.1 fails with an OverflowError."""
_WORDS: dict[str, tuple[Any, Slip | None]] = {
    "true": (True, None),
    "false": (False, None),
    "null": (None, None),
    "True": (True, Slip.PYTHON_WORD),
    "False": (False, Slip.PYTHON_WORD),
    "None": (None, Slip.PYTHON_WORD),
    "NaN": (float("nan"), Slip.NOT_A_NUMBER),
    "Infinity": (float("inf"), Slip.NOT_A_NUMBER),
    "-Infinity": (float("-inf"), Slip.NOT_A_NUMBER),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A value, where it ends, and its slip."""

    value: Any
    end: int
    slip: Slip | None = None


def read_scalar(text: str, start: int, *, in_list: bool) -> Scalar:
    """Read the value without quotes that begins at an offset.

    Args:
        text: the whole text.
        start: offset of the value's first character.
        in_list: a comma between two numbers then parts two entries and is no decimal comma.

    Example:
        >>> read_scalar("0,01}", 0, in_list=False).value
        0.01
        >>> read_scalar("True,", 0, in_list=False).slip
        <Slip.PYTHON_WORD: 'a Python word'>
    """
    if not in_list and (match := _DECIMAL_COMMA.match(text, start)):
        number = float(match.group().replace(",", "."))
        return Scalar(value=number, end=match.end(), slip=Slip.DECIMAL_COMMA)
    if match := _SPACED_NUMBER.match(text, start):
        return Scalar(value=_loose_number(match.group()), end=match.end(), slip=Slip.NUMBER_FORM)
    if match := _NUMBER.match(text, start):
        number = _number(match.group())
        slip = Slip.NOT_A_NUMBER if number in _INFINITE else None
        return Scalar(value=number, end=match.end(), slip=slip)
    if (match := _WORD.match(text, start)) and match.group() in _WORDS:
        value, slip = _WORDS[match.group()]
        return Scalar(value=value, end=match.end(), slip=slip)
    if match := _PLACEHOLDER.match(text, start):
        return Scalar(value=match.group(), end=match.end(), slip=Slip.PLACEHOLDER)
    return _bare(text, start)


def _bare(text: str, start: int) -> Scalar:
    match = _TOKEN.match(text, start)
    token = match.group().rstrip() if match else ""
    end = start + len(token)
    if not token:
        return Scalar(value=None, end=end, slip=Slip.MISSING_VALUE)
    if _LOOSE_NUMBER.fullmatch(token):
        return Scalar(value=_loose_number(token), end=end, slip=Slip.NUMBER_FORM)
    if token[-1] in "\"'" and token.count(token[-1]) == 1:
        return Scalar(value=token[:-1], end=end, slip=Slip.MISSING_QUOTE)
    slip = Slip.KEY_AS_TEXT if _KEY_AND_VALUE.match(token) else Slip.BARE_TEXT
    return Scalar(value=token, end=end, slip=slip)


def _number(literal: str) -> int | float:
    return float(literal) if set(literal) & set(".eE") else _int(literal)


def _int(literal: str) -> int | float:
    # Python refuses to read integers of more than 4,300 digits.
    return int(literal) if len(literal) < 4000 else float("inf")


def _loose_number(token: str) -> int | float:
    plain = token.replace("_", "").replace(" ", "").replace("\t", "")
    if "x" in plain.lower():
        return int(plain, 16)
    return float(plain) if set(plain) & set(".eE") else _int(plain)
