"""The loop of Python that measures the speed of a rank's host."""

import gc

import pytest

from autotune.trial import python_speed
from autotune.trial.python_speed import host_loop_s


def test_it_takes_longer_the_more_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    once = min(host_loop_s() for _ in range(9))
    monkeypatch.setattr(python_speed, "_ITERATIONS", 50 * python_speed._ITERATIONS)
    assert host_loop_s() > 10 * once > 0


def test_it_does_not_bring_the_next_garbage_collection_nearer() -> None:
    gc.collect()
    gc.disable()
    try:
        before = gc.get_count()[0]
        host_loop_s()
        assert gc.get_count()[0] - before < 10
    finally:
        gc.enable()
