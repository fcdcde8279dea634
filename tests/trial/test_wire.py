import json
import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autotune.trial import wire

texts = st.text(max_size=30)
contents = st.dictionaries(st.sampled_from(["where", "at", "spec"]), texts | st.integers())


def _sent(kind: str, **content: Any) -> bytes:
    reading, writing = os.pipe()
    try:
        wire.send(writing, kind, **content)
        return os.read(reading, 1 << 16)
    finally:
        os.close(reading)
        os.close(writing)


@given(st.lists(st.tuples(texts, contents), max_size=8), st.data())
def test_messages_arrive_whole_however_they_are_cut(
    messages: list[tuple[str, dict[str, Any]]], data: st.DataObject
) -> None:
    stream = b"".join(_sent(kind, **content) for kind, content in messages)
    reader, received = wire.LineReader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        received += list(reader.feed(stream[:size]))
        stream = stream[size:]
    assert received == [{"kind": kind} | content for kind, content in messages]


@given(st.integers(0, 60))
def test_the_half_line_of_a_killed_rank_costs_no_other_message(num_written: int) -> None:
    half = _sent("mark", phase="steady", where="step 3, micro step 1", at=1.5)[:num_written]
    exited = _sent("exited", pid=7, code=-9)
    received = list(wire.LineReader().feed(half + exited))
    assert received[-1] == {"kind": "exited", "pid": 7, "code": -9}


def test_a_line_without_its_end_is_not_a_message_yet() -> None:
    reader = wire.LineReader()
    message = json.dumps({"kind": "ready"}).encode()
    assert list(reader.feed(message)) == []
    assert list(reader.feed(b"\n")) == [{"kind": "ready"}]


def test_a_message_larger_than_the_pipe_is_sent_whole() -> None:
    reading, writing = os.pipe()
    text = "x" * (1 << 20)
    child = os.fork()
    if child == 0:
        os.close(reading)
        wire.send(writing, "measured", text=text)
        os._exit(0)
    os.close(writing)
    reader = wire.LineReader()
    received = [
        m for chunk in iter(lambda: os.read(reading, 1 << 16), b"") for m in reader.feed(chunk)
    ]
    os.close(reading)
    os.waitpid(child, 0)
    assert received == [{"kind": "measured", "text": text}]
