"""Lines and columns of offsets into a text."""

import bisect
import re

_LINE_BREAK = re.compile(r"\r\n|\r|\n")


class LineIndex:
    """Where the lines of one text start."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text))]

    def of(self, offset: int) -> tuple[int, int]:
        r"""Return line and column, both from 1.

        Example:
            >>> LineIndex("a\r\nbc").of(4)
            (2, 2)
        """
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1
