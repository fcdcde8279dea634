"""JSON lines between a slot, its preloaded parent and that parent's ranks.

A rank that is killed while it writes leaves half a line. Every message therefore starts with a line
break: the half line is separate and is dropped.
"""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any


def send(fd: int, kind: str, **content: Any) -> None:
    """Write one message; blocks while the pipe is full.

    Raises:
        BrokenPipeError: the other side has ended.
    """
    data = memoryview(f"\n{json.dumps({'kind': kind} | content)}\n".encode())
    while data:
        data = data[os.write(fd, data) :]


class LineReader:
    """Reassembles messages from chunks read off a pipe."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, chunk: bytes) -> Iterator[Mapping[str, Any]]:
        """Yield every message that `chunk` completes; half lines of killed ranks are dropped."""
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        for line in lines:
            if not line:
                continue
            try:
                message = json.loads(line)
            except ValueError:
                continue
            yield message
