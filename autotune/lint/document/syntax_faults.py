"""How a text departs from JSON."""

from dataclasses import dataclass
from enum import StrEnum


class Slip(StrEnum):
    """One kind of departure; the value is how a message names it."""

    COMMENT = "a comment"
    TRAILING_COMMA = "a comma after the last entry"
    MISSING_COMMA = "a missing comma"
    BARE_KEY = "a key without quotes"
    BARE_TEXT = "text without quotes"
    KEY_AS_TEXT = "a key and its value, read as text"
    SINGLE_QUOTES = "single quotes"
    NO_BRACES = "no braces round the whole"
    EXTRA_COMMA = "a comma too many"
    CURLY_QUOTES = "typographic quotes"
    DECIMAL_COMMA = "a decimal comma"
    PYTHON_WORD = "a Python word"
    NOT_A_NUMBER = "NaN or Infinity"
    NUMBER_FORM = "a number in a form that JSON does not have"
    PLACEHOLDER = "a placeholder that is not filled in"
    EQUALS_SIGN = "an equals sign for a colon"
    MISSING_COLON = "a missing colon"
    MISSING_VALUE = "a missing value"
    MISSING_QUOTE = "a missing quote"
    MISSING_BRACKET = "a missing closing bracket"
    WRONG_BRACKET = "a closing bracket that closes nothing"
    BAD_ESCAPE = "a backslash that begins no escape"
    CONTROL_CHARACTER = "a raw tab or control character in a string"
    EXTRA_TEXT = "text after the end"
    TOO_DEEP = "sections in sections without end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """One slip at one place."""

    slip: Slip
    offset: int
    """Characters before it."""
    key: str = ""
    """Dotted key of the value it touches; empty where it touches none."""
    text: str = ""
    """What stands there, where that helps."""


MENDS = {
    Slip.COMMENT: 'drop it, or keep it as the value of a top-level key "_comment"',
    Slip.TRAILING_COMMA: "drop it",
    Slip.MISSING_COMMA: "put a comma between the two entries",
    Slip.BARE_KEY: "put the key into double quotes",
    Slip.BARE_TEXT: "put the text into double quotes",
    Slip.KEY_AS_TEXT: "put braces round the section; or is it YAML? then name the file .yaml",
    Slip.SINGLE_QUOTES: "JSON knows double quotes only",
    Slip.NO_BRACES: "begin with { and end with }",
    Slip.EXTRA_COMMA: "drop it",
    Slip.CURLY_QUOTES: 'write straight double quotes: "',
    Slip.DECIMAL_COMMA: "write a decimal point",
    Slip.PYTHON_WORD: "JSON writes true, false and null",
    Slip.NOT_A_NUMBER: "JSON has no such number; drop the key or give a large one",
    Slip.NUMBER_FORM: "write plain decimal digits, such as 500000000, 5e8 or 0.5",
    Slip.PLACEHOLDER: "fill the template in, and check what comes out",
    Slip.EQUALS_SIGN: "write a colon",
    Slip.MISSING_COLON: "put a colon between key and value",
    Slip.MISSING_VALUE: "give a value, or drop the key",
    Slip.MISSING_QUOTE: "close the string with a double quote",
    Slip.MISSING_BRACKET: "close every { with } and every [ with ]",
    Slip.WRONG_BRACKET: "drop it, or open the section that it should close",
    Slip.BAD_ESCAPE: "write a backslash as two: \\\\",
    Slip.CONTROL_CHARACTER: "write \\t for a tab and \\n for a line break",
    Slip.EXTRA_TEXT: "a ds_config is one { ... }; drop the rest",
    Slip.TOO_DEEP: "a ds_config is a mapping of sections, at most five deep",
}
"""The way out of each."""
