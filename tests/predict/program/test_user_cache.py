"""The user's cache folder: kept, found again, never in the way."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.predict.program import trace
from autotune.predict.program.trace import trace_program
from autotune.predict.program.trace.trace_files import read_trace, write_trace
from autotune.predict.program.user_cache import read_cached, write_cached
from autotune.predict.training_job import ModelSettings, Training
from tests.predict.traced import COMMON, training_of

KEY = {"model": "a", "layers": [1, 2]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder."""
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path))
    return tmp_path


def job(**keys: Any) -> Training:
    return training_of(COMMON | {"model_type": "qwen3"}, seq_len=16, **keys)


def only_file(folder: Path) -> Path:
    (file,) = folder.rglob("*.json.gz")
    return file


def test_what_is_kept_is_found_under_its_key_only(folder: Path) -> None:
    write_cached("kind", KEY, {"value": [1, None]})
    assert read_cached("kind", KEY) == {"value": [1, None]}
    assert read_cached("kind", KEY | {"model": "b"}) is None
    assert read_cached("other", KEY) is None
    assert [path.name for path in folder.iterdir()] == ["kind"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not gzip",
        gzip.compress(b"[1, 2]"),
        gzip.compress(b"not json"),
        gzip.compress(json.dumps({"key": {"model": "other"}, "value": 1}).encode()),
        gzip.compress(b"{}" * 1000)[:20],
    ],
)
def test_a_corrupt_or_foreign_file_is_as_none_and_written_anew(
    content: bytes, folder: Path
) -> None:
    write_cached("kind", KEY, 1)
    only_file(folder).write_bytes(content)
    assert read_cached("kind", KEY) is None
    write_cached("kind", KEY, 2)
    assert read_cached("kind", KEY) == 2


def test_a_folder_that_cannot_be_written_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("AUTOTUNE_CACHE", str(file / "below"))
    write_cached("kind", KEY, 1)
    assert read_cached("kind", KEY) is None


def test_the_folder_is_where_users_look_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AUTOTUNE_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative, so ignored")
    write_cached("traces", KEY, 1)
    assert only_file(tmp_path).parent == tmp_path / "home" / ".cache" / "autotune" / "traces"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    write_cached("traces", KEY, 1)
    assert list((tmp_path / "xdg" / "autotune" / "traces").glob("*.json.gz"))


def test_a_trace_comes_back_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    training = job(settings=ModelSettings(activation_checkpointing=True))
    traced = trace_program(training)
    trace._traced.cache_clear()
    monkeypatch.setattr(trace, "_trace", lambda _: pytest.fail("traced again"))
    assert trace_program(training) == traced


@pytest.mark.parametrize(
    "changes",
    [
        {"seq_len": 17},
        {"micro_batch_size": 3},
        {"precision": "fp16"},
        {"attn_implementation": "eager"},
        {"activation_checkpointing": True},
        {"expert_parallel_size": 2},
    ],
    ids=str,
)
def test_another_step_is_another_trace(changes: dict[str, Any]) -> None:
    training = job()
    write_trace(training, trace_program(training))
    assert read_trace(training) is not None
    assert read_trace(replace(training, **changes)) is None
    # Of what has no part in a micro step it is the same.
    assert read_trace(replace(training, world_size=64, accumulation=7)) is not None


def test_another_version_is_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    training = job()
    write_trace(training, trace_program(training))
    monkeypatch.setattr("autotune.predict.program.trace.trace_files.version", lambda _: "0")
    assert read_trace(training) is None


def test_a_trace_of_the_right_key_and_a_wrong_form_is_traced_again(folder: Path) -> None:
    training = job()
    traced = trace_program(training)
    write_trace(training, traced)
    file = only_file(folder)
    content = json.loads(gzip.decompress(file.read_bytes()))
    content["value"]["events"] = [[0, 1]]
    file.write_bytes(gzip.compress(json.dumps(content).encode()))
    trace._traced.cache_clear()
    assert trace_program(training) == traced
    assert read_trace(training) == traced
