"""Runs many questions to DeepSpeed, each in a fork of a process that has imported it once."""

import json
import os
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def in_forks(
    answer: Callable[[dict[str, Any]], Any], questions: Sequence[dict[str, Any]], *, if_dead: Any
) -> Iterator[Any]:
    """Answer each in a child: groups and patches of one engine must not reach the next.

    As many children as there are CPUs live at once, so the caller has no thread yet.

    Args:
        answer: returns JSON values.
        questions: one for each child.
        if_dead: stands for the answer of a child that ended without one.

    Yields:
        The answers, in the order of the questions.
    """
    living: deque[tuple[int, int]] = deque()
    for question in questions:
        living.append(_fork(answer, question))
        if len(living) == os.cpu_count():
            yield _answer(*living.popleft(), if_dead=if_dead)
    while living:
        yield _answer(*living.popleft(), if_dead=if_dead)


def _fork(answer: Callable[[dict[str, Any]], Any], question: dict[str, Any]) -> tuple[int, int]:
    """Return a child that answers, and the pipe it writes to."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            with os.fdopen(writing, "w") as pipe:
                pipe.write(json.dumps(answer(question)))
        except BaseException:  # noqa: BLE001  a child that goes on would be a second parent
            traceback.print_exc()
        os._exit(0)
    os.close(writing)
    return child, reading


def _answer(child: int, reading: int, *, if_dead: Any) -> Any:
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else if_dead
