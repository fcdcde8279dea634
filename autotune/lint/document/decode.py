"""Decodes bytes to text, or reports why they are not text."""

import codecs
from dataclasses import dataclass

from autotune.lint.document.line_index import LineIndex

MAX_BYTES = 1 << 18
"""A ds_config has a few kilobytes; a larger file is something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A decoded file."""

    text: str
    """Without a byte order mark."""
    byte_order_mark: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoText:
    """Why a file cannot be read as text, and where."""

    reason: str
    suggestion: str
    line: int = 1
    column: int = 1


def decode(data: bytes) -> Text | NoText:
    """Return the text of a file in UTF-8.

    Example:
        >>> decode(b"").reason
        'the file is empty'
    """
    if len(data) > MAX_BYTES:
        return NoText(
            reason=f"the file has {len(data) / 1e6:.1f} MB; a ds_config has a few kB",
            suggestion="give the path of the ds_config",
        )
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return NoText(reason="the file is UTF-16", suggestion="save it as UTF-8")
    marked = data.startswith(codecs.BOM_UTF8)
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line, column = LineIndex(data[: error.start].decode()).of(len(data[: error.start].decode()))
        return NoText(
            reason=f"byte 0x{data[error.start]:02x} is not UTF-8",
            suggestion="save the file as UTF-8",
            line=line,
            column=column,
        )
    if "\0" in text:
        line, column = LineIndex(text).of(text.index("\0"))
        return NoText(
            reason="the file is binary: it contains a zero byte",
            suggestion="give the path of the ds_config",
            line=line,
            column=column,
        )
    if not text.strip():
        return NoText(reason="the file is empty", suggestion='write {"train_batch_size": 32}')
    return Text(text=text, byte_order_mark=marked)
