"""A value without quotes: the value intended, and how it differs from JSON."""

import re
from dataclasses import dataclass
from typing import Any

from autotune.lint.document.syntax_faults import SyntaxFault

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
"""What json reads 1e999 as; hjson 3.1 fails with an OverflowError."""
_WORDS: dict[str, tuple[Any, SyntaxFault | None]] = {
    "true": (True, None),
    "false": (False, None),
    "null": (None, None),
    "True": (True, SyntaxFault.PYTHON_WORD),
    "False": (False, SyntaxFault.PYTHON_WORD),
    "None": (None, SyntaxFault.PYTHON_WORD),
    "NaN": (float("nan"), SyntaxFault.NOT_A_NUMBER),
    "Infinity": (float("inf"), SyntaxFault.NOT_A_NUMBER),
    "-Infinity": (float("-inf"), SyntaxFault.NOT_A_NUMBER),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A value, where it ends, and its fault."""

    value: Any
    end: int
    fault: SyntaxFault | None = None


def read_scalar(text: str, start: int, *, in_list: bool) -> Scalar:
    """Read the value without quotes that starts at an offset.

    Args:
        text: the whole text.
        start: offset of the value's first character.
        in_list: a comma between two numbers then separates two entries and is not a decimal comma.

    Example:
        >>> read_scalar("0,01}", 0, in_list=False).value
        0.01
        >>> read_scalar("True,", 0, in_list=False).fault
        <SyntaxFault.PYTHON_WORD: 'a Python word'>
    """
    if not in_list and (match := _DECIMAL_COMMA.match(text, start)):
        number = float(match.group().replace(",", "."))
        return Scalar(value=number, end=match.end(), fault=SyntaxFault.DECIMAL_COMMA)
    if match := _SPACED_NUMBER.match(text, start):
        return Scalar(
            value=_loose_number(match.group()), end=match.end(), fault=SyntaxFault.NUMBER_FORM
        )
    if match := _NUMBER.match(text, start):
        number = _number(match.group())
        fault = SyntaxFault.NOT_A_NUMBER if number in _INFINITE else None
        return Scalar(value=number, end=match.end(), fault=fault)
    if (match := _WORD.match(text, start)) and match.group() in _WORDS:
        value, fault = _WORDS[match.group()]
        return Scalar(value=value, end=match.end(), fault=fault)
    if match := _PLACEHOLDER.match(text, start):
        return Scalar(value=match.group(), end=match.end(), fault=SyntaxFault.PLACEHOLDER)
    return _bare(text, start)


def _bare(text: str, start: int) -> Scalar:
    match = _TOKEN.match(text, start)
    token = match.group().rstrip() if match else ""
    end = start + len(token)
    if not token:
        return Scalar(value=None, end=end, fault=SyntaxFault.MISSING_VALUE)
    if _LOOSE_NUMBER.fullmatch(token):
        return Scalar(value=_loose_number(token), end=end, fault=SyntaxFault.NUMBER_FORM)
    if token[-1] in "\"'" and token.count(token[-1]) == 1:
        return Scalar(value=token[:-1], end=end, fault=SyntaxFault.MISSING_QUOTE)
    fault = SyntaxFault.KEY_AS_TEXT if _KEY_AND_VALUE.match(token) else SyntaxFault.BARE_TEXT
    return Scalar(value=token, end=end, fault=fault)


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
