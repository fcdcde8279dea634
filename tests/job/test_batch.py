"""What a rank does per optimizer step, as its launcher works it out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import WorkloadError
from autotune.job.batch import ACCUMULATION, MICRO_BATCH, TRAIN_BATCH, Batch, resolve_batch
from autotune.job.launcher import Launcher
from autotune.job.origin import Origin
from autotune.lint.subject import Launch, Subject

AUTO = {TRAIN_BATCH: "auto", MICRO_BATCH: "auto", ACCUMULATION: "auto"}


def _batch(
    config: dict[str, Any],
    *,
    hf_args: dict[str, Any] | None = None,
    launcher: Launcher = Launcher.DEEPSPEED,
    form: str = "ds_config",
    **options: Any,
) -> Batch:
    launch = Launch(launcher=Launcher.HF if hf_args is not None else launcher, hf_args=hf_args)
    subject = Subject(config=config, launch=launch, form=form)
    return resolve_batch(subject, **{"ranks": 8, **options})


@pytest.mark.parametrize("launcher", [Launcher.DEEPSPEED, Launcher.HF])
def test_auto_is_the_trainers_default(launcher: Launcher) -> None:
    batch = _batch(AUTO, launcher=launcher)
    assert (batch.micro, batch.accumulation, batch.origin) == (8, 1, Origin.TRAINER)
    assert batch.is_open


def test_auto_is_what_the_arguments_say() -> None:
    given = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 5}
    batch = _batch(AUTO, hf_args=given)
    assert (batch.micro, batch.accumulation, batch.origin) == (3, 5, Origin.HF_ARGS)
    assert not batch.is_open


def test_arguments_without_sizes_leave_their_defaults() -> None:
    batch = _batch(AUTO, hf_args={"bf16": True})
    assert (batch.micro, batch.accumulation, batch.origin) == (8, 1, Origin.HF_ARGS)


def test_under_the_trainer_a_missing_key_is_filled_like_auto() -> None:
    assert _batch({}, launcher=Launcher.HF).origin is Origin.TRAINER
    missing = _batch({})
    assert (missing.micro, missing.origin, missing.is_open) == (1, None, True)


def test_auto_of_accelerate_is_open() -> None:
    batch = _batch(AUTO, launcher=Launcher.HF, form="accelerate")
    assert batch.origin is None
    assert batch.is_open


@pytest.mark.parametrize(
    ("config", "micro", "accumulation"),
    [
        ({MICRO_BATCH: 4}, 4, 1),
        ({MICRO_BATCH: 4, ACCUMULATION: 3}, 4, 3),
        ({TRAIN_BATCH: 64}, 8, 1),
        ({TRAIN_BATCH: 64, ACCUMULATION: 4}, 2, 4),
        ({TRAIN_BATCH: 64, MICRO_BATCH: 4}, 4, 2),
        ({TRAIN_BATCH: 64, MICRO_BATCH: "auto"}, 8, 1),
        # These contradict each other, which is a rule's finding: memory depends on the micro batch.
        ({TRAIN_BATCH: 250, MICRO_BATCH: 4}, 4, 7),
    ],
)
def test_a_written_batch_is_completed_as_deepspeed_does(
    config: dict[str, Any], micro: int, accumulation: int
) -> None:
    batch = _batch(config)
    assert batch == Batch(micro=micro, accumulation=accumulation, origin=Origin.DS_CONFIG)


def test_a_given_global_batch_decides_the_accumulation() -> None:
    written = {MICRO_BATCH: 4, ACCUMULATION: 2, TRAIN_BATCH: 64}
    assert _batch(written, global_batch_size=128).accumulation == 4


def test_auto_divides_a_given_global_batch() -> None:
    whole = _batch(AUTO, global_batch_size=128)
    assert (whole.micro, whole.accumulation) == (8, 2)
    # 12 sequences a rank: 6 is the largest size up to the Trainer's that divides them.
    assert _batch(AUTO, global_batch_size=96).micro == 6
    steps = _batch({MICRO_BATCH: "auto", ACCUMULATION: 2}, global_batch_size=64)
    assert (steps.micro, steps.accumulation) == (4, 2)


def test_a_record_is_asked_last() -> None:
    assert _batch({}, recorded=6) == Batch(micro=6, accumulation=1, origin=Origin.RECORD)
    assert _batch({MICRO_BATCH: 2}, recorded=6).micro == 2
    assert _batch(AUTO, recorded=6).origin is Origin.TRAINER


@pytest.mark.parametrize(
    ("config", "batch", "message"),
    [
        ({}, 12, r"global_batch_size=12: not divisible by 8 ranks; nearest: 8 or 16"),
        ({}, 4, r"global_batch_size=4: not divisible by 8 ranks; nearest: 8$"),
        ({MICRO_BATCH: 3}, 64, rf"{MICRO_BATCH}=3: does not divide the 8 sequences of a rank"),
    ],
)
def test_a_global_batch_that_cannot_be_divided_is_refused(
    config: dict[str, Any], batch: int, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        _batch(config, global_batch_size=batch)


@given(
    micro=st.sampled_from([None, "auto", 1, 2, 8]),
    steps=st.sampled_from([None, "auto", 1, 2, 4]),
    per_rank=st.integers(1, 32),
)
def test_a_global_batch_is_met_or_refused(
    micro: int | str | None, steps: int | str | None, per_rank: int
) -> None:
    config = {MICRO_BATCH: micro, ACCUMULATION: steps}
    config = {key: size for key, size in config.items() if size is not None}
    try:
        batch = _batch(config, global_batch_size=per_rank * 8)
    except WorkloadError:
        # Auto meets any global batch that the written accumulation divides.
        assert isinstance(micro, int) or isinstance(steps, int)
        return
    assert batch.micro * batch.accumulation == per_rank
