"""The process that builds; what it builds is in tests/gpu, since a compiler takes a minute."""

import os
import time
from pathlib import Path

import psutil
import pytest

from autotune.pool.op_build import OpBuild


def _end(build: OpBuild) -> dict[str, object]:
    deadline = time.monotonic() + 60
    answer = build.poll(0.5)
    while not answer["done"]:
        assert time.monotonic() < deadline
        answer = build.poll(0.5)
    return answer


def test_nothing_to_build_ends_at_once() -> None:
    answer = _end(OpBuild([], os.environ))
    assert (answer["building"], answer["why"]) == ([], None)


def test_an_op_that_cannot_be_built_has_a_reason() -> None:
    answer = _end(OpBuild(["no_such_op"], os.environ | {"DS_ACCELERATOR": "cpu"}))
    assert "no_such_op" in str(answer["why"])


def test_a_build_that_dies_reports_its_output(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('no such thing')")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    answer = _end(OpBuild(["cpu_adam"], environment))
    assert "no such thing" in str(answer["why"])


def test_what_is_stopped_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    build = OpBuild(["cpu_adam"], os.environ | {"DS_ACCELERATOR": "cpu"})
    process = psutil.Process(build._process.pid)
    build.stop()
    assert not process.is_running()
