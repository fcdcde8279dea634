"""Formats values for messages."""

import json
from typing import Any

_LONGEST = 40


def format_value(value: Any) -> str:
    """Return a value as JSON, cut where it is long.

    Example:
        >>> format_value({"device": None}), format_value("x" * 99)
        ('{"device": null}', '"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...')
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
