from typing import Any

import pytest
from deepspeed.runtime.config import DeepSpeedConfig
from hypothesis import given
from hypothesis import strategies as st

from autotune.job.launcher import Launcher
from autotune.lint.finding import Finding, Severity
from autotune.lint.rules.batch import MICRO, STEPS, TRAIN, batch_arithmetic
from autotune.lint.subject import Launch, Subject


def _found(config: dict[str, Any], **launch: Any) -> list[Finding]:
    return list(batch_arithmetic.findings(Subject(config=config, launch=Launch(**launch))))


def _errors(config: dict[str, Any], **launch: Any) -> list[str]:
    return [f.field for f in _found(config, **launch) if f.severity is Severity.ERROR]


def _sizes(train: Any = None, micro: Any = None, steps: Any = None) -> dict[str, Any]:
    sizes = {TRAIN: train, MICRO: micro, STEPS: steps}
    return {key: size for key, size in sizes.items() if size is not None}


def _deepspeed_accepts(config: dict[str, Any], *, ranks: int) -> bool:
    parsed = object.__new__(DeepSpeedConfig)
    parsed.world_size = ranks
    parsed.train_batch_size = config.get(TRAIN)
    parsed.train_micro_batch_size_per_gpu = config.get(MICRO)
    parsed.gradient_accumulation_steps = config.get(STEPS)
    try:
        parsed._configure_train_batch_size()
    except (AssertionError, ZeroDivisionError):
        return False
    return True


_vast = st.sampled_from((10**299, 1e299, 0.5, 2**31))
_size = st.none() | st.integers(-1, 40) | st.integers(-1, 40).map(float) | st.booleans()


@given(_size, _size, _size, st.integers(1, 9))
def test_what_deepspeed_refuses_is_an_error_and_nothing_else(
    train: Any, micro: Any, steps: Any, ranks: int
) -> None:
    config = _sizes(train, micro, steps)
    accepted = _deepspeed_accepts(config, ranks=ranks)
    assert (_errors(config, gpus=ranks) == []) == accepted


@given(_size | _vast, _size | _vast, _size | _vast, st.integers(1, 9))
def test_no_size_is_too_odd(train: Any, micro: Any, steps: Any, ranks: int) -> None:
    _found(_sizes(train, micro, steps), gpus=ranks)


@given(_size, _size, _size)
def test_with_unknown_ranks_what_holds_on_no_number_of_them_is_an_error(
    train: Any, micro: Any, steps: Any
) -> None:
    config = _sizes(train, micro, steps)
    ever = any(_deepspeed_accepts(config, ranks=ranks) for ranks in range(1, 41))
    assert (_errors(config) == []) == ever


@pytest.mark.parametrize(
    ("config", "launch", "message", "suggestion"),
    [
        (
            _sizes(256, 8, 1),
            {"gpus": 8},
            "train_batch_size=256: must be train_micro_batch_size_per_gpu x "
            "gradient_accumulation_steps x data-parallel ranks = 8 x 1 x 8 = 64",
            "gradient_accumulation_steps: 4; or train_batch_size: 64; "
            "or run it on 32 data-parallel ranks",
        ),
        (
            _sizes(30, 4),
            {"gpus": 3},
            "train_batch_size=30: must be a multiple of train_micro_batch_size_per_gpu x "
            "data-parallel ranks = 4 x 3 = 12",
            "train_batch_size: 24 or 36; or train_micro_batch_size_per_gpu: 2",
        ),
        (
            _sizes(31),
            {"gpus": 8},
            "train_batch_size=31: must be a multiple of data-parallel ranks = 8",
            "train_batch_size: 24 or 32",
        ),
        (
            _sizes(4, None, 8),
            {},
            "train_batch_size=4: must be a multiple of gradient_accumulation_steps = 8",
            "train_batch_size: 8",
        ),
        (
            _sizes(3, 0.4),
            {"gpus": 1},
            "train_batch_size=3.0: must be a multiple of train_micro_batch_size_per_gpu x "
            "data-parallel ranks = 0.4 x 1 = 0.4",
            None,
        ),
        (
            _sizes(10**12 + 1, 10**9),
            {"gpus": 1},
            "train_batch_size=1000000000001: must be a multiple of "
            "train_micro_batch_size_per_gpu x data-parallel ranks = 1000000000 x 1 = 1000000000",
            None,
        ),
        (_sizes(8.5), {}, "train_batch_size=8.5: must be a whole number", None),
        (_sizes(None, 0), {}, f"{MICRO}=0: must be at least 1", "write 1 or more, or leave it out"),
    ],
)
def test_the_nearest_sizes_that_hold_are_named(
    config: dict[str, Any], launch: dict[str, Any], message: str, suggestion: str | None
) -> None:
    found = _found(config, **launch)[0]
    assert found.message == message
    assert found.suggestion == suggestion


def test_another_accumulation_is_reported_at_its_key() -> None:
    [error, warning] = _found(_sizes(256, 8, 1), gpus=8)
    assert (error.field, error.severity) == (TRAIN, Severity.ERROR)
    assert (warning.field, warning.severity) == (STEPS, Severity.WARNING)
    assert warning.suggestion == "gradient_accumulation_steps: 4"


def test_stages_and_tensor_ranks_are_not_data_parallel_ranks() -> None:
    config = _sizes(64, 4, 8)
    assert _errors(config, gpus=8) == [TRAIN]
    assert _errors(config, gpus=8, pipeline_stages=2, tensor_parallel=2) == []


def test_ranks_that_share_a_sequence_count_as_one() -> None:
    shared = {"sequence_parallel_size": 4}
    assert _errors(_sizes(64, 4, 8) | shared, gpus=8) == []
    assert _errors(_sizes(64, 4, 2) | shared, gpus=8) != []
    # Of a mesh, and of ranks that cannot be shared so, nothing is guessed.
    for odd in ({"data_parallel_size": 2}, {"sequence_parallel_size": 3}):
        assert _errors(_sizes(64, 4, 2) | shared | odd, gpus=8) == []
    assert _errors(_sizes(64, 4, 8) | {"data_parallel_size": 2}, gpus=8) != []


@pytest.mark.parametrize(
    ("config", "errors"),
    [
        (_sizes("auto", "auto", "auto"), []),
        (_sizes("auto", 4, 2), []),
        (_sizes(32, "auto", "auto"), []),
        (_sizes(30, "auto", "auto"), [TRAIN]),
        (_sizes(32, 4, "auto"), []),
        (_sizes(32, 3, "auto"), [TRAIN]),
        # accelerate takes 1 for a missing accumulation
        (_sizes(64, 4), [TRAIN]),
        (_sizes(32, 4), []),
        (_sizes(None, None, "auto"), [MICRO]),
    ],
)
def test_hugging_face_fills_auto(config: dict[str, Any], errors: list[str]) -> None:
    assert _errors(config, gpus=8, launcher=Launcher.HF) == errors


@pytest.mark.parametrize("value", ["8", "auto", [8], {}, None, 10**400, float("nan")])
def test_a_value_that_is_not_a_size_has_another_rule(value: Any) -> None:
    assert _errors({TRAIN: value, MICRO: 2}, gpus=4) == []
