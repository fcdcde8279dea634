"""The ways in which a text differs from JSON."""

from dataclasses import dataclass
from enum import StrEnum


class SyntaxFault(StrEnum):
    """One kind of difference; the value is its name in messages."""

    COMMENT = "a comment"
    TRAILING_COMMA = "a comma after the last entry"
    MISSING_COMMA = "a missing comma"
    BARE_KEY = "a key without quotes"
    BARE_TEXT = "text without quotes"
    KEY_AS_TEXT = "a key and its value, read as text"
    SINGLE_QUOTES = "single quotes"
    NO_BRACES = "no braces around the config"
    EXTRA_COMMA = "an extra comma"
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
    BAD_ESCAPE = "a backslash that does not start an escape"
    CONTROL_CHARACTER = "a raw tab or control character in a string"
    EXTRA_TEXT = "text after the end"
    TOO_DEEP = "sections nested too deeply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """One syntax fault at one place."""

    fault: SyntaxFault
    offset: int
    """Characters before it."""
    key: str = ""
    """Dotted key of the value it affects; empty where it affects none."""
    text: str = ""
    """The text there, where that helps."""


SUGGESTIONS = {
    SyntaxFault.COMMENT: 'remove it, or make it the value of a top-level key "_comment"',
    SyntaxFault.TRAILING_COMMA: "remove it",
    SyntaxFault.MISSING_COMMA: "put a comma between the two entries",
    SyntaxFault.BARE_KEY: "put the key into double quotes",
    SyntaxFault.BARE_TEXT: "put the text into double quotes",
    SyntaxFault.KEY_AS_TEXT: "put braces around the section; name the file .yaml if it is YAML",
    SyntaxFault.SINGLE_QUOTES: "use double quotes",
    SyntaxFault.NO_BRACES: "start with { and end with }",
    SyntaxFault.EXTRA_COMMA: "remove it",
    SyntaxFault.CURLY_QUOTES: 'write straight double quotes: "',
    SyntaxFault.DECIMAL_COMMA: "write a decimal point",
    SyntaxFault.PYTHON_WORD: "write true, false or null",
    SyntaxFault.NOT_A_NUMBER: "JSON has no such number; remove the key or write a large number",
    SyntaxFault.NUMBER_FORM: "write plain decimal digits, such as 500000000, 5e8 or 0.5",
    SyntaxFault.PLACEHOLDER: "fill the template in, and check the result",
    SyntaxFault.EQUALS_SIGN: "write a colon",
    SyntaxFault.MISSING_COLON: "put a colon between key and value",
    SyntaxFault.MISSING_VALUE: "give a value, or remove the key",
    SyntaxFault.MISSING_QUOTE: "close the string with a double quote",
    SyntaxFault.MISSING_BRACKET: "close every { with } and every [ with ]",
    SyntaxFault.WRONG_BRACKET: "remove it, or open the section that it should close",
    SyntaxFault.BAD_ESCAPE: "write a backslash as two: \\\\",
    SyntaxFault.CONTROL_CHARACTER: "write \\t for a tab and \\n for a line break",
    SyntaxFault.EXTRA_TEXT: "a ds_config is one { ... }; remove the rest",
    SyntaxFault.TOO_DEEP: "a ds_config is a mapping of sections, at most five deep",
}
"""One for each fault."""
