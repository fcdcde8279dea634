from dataclasses import replace
from typing import Any

import pytest

from autotune.job.ceiling import GIB
from autotune.job.device import find_device
from autotune.predict.memory.error_margins import (
    MEASURED_MARGIN,
    UNMEASURED_MARGIN,
    margin,
    unmeasured,
)
from autotune.predict.memory.predict import Surroundings, predict_memory, screen_memory
from autotune.predict.program.items import ITEM_NAMES, Part
from autotune.predict.training_job import ModelSettings, Training
from tests.predict.jobs import job

H100 = find_device("h100")


@pytest.mark.parametrize(
    ("zero", "keys"),
    [
        *(({"stage": stage}, {}) for stage in range(4)),
        ({"stage": 2}, {"bf16": {}, "fp16": {"enabled": True}}),
        ({"stage": 2}, {"model": "gpt2"}),
        ({"stage": 3, "overlap_comm": False}, {}),
        ({"stage": 3, "zero_hpz_partition_size": 4}, {}),
        ({"stage": 2}, {"optimizer": {"type": "Lion"}}),
        ({"stage": 2}, {"data_types": {"grad_accum_dtype": "fp32"}}),
        ({"stage": 2, "offload_optimizer": {"device": "cpu"}}, {"gradient_accumulation_steps": 2}),
        ({"stage": 2}, {"settings": ModelSettings(attn_implementation="eager")}),
    ],
)
def test_what_rows_cover_is_measured(zero: dict[str, Any], keys: dict[str, Any]) -> None:
    training = job(zero, **keys)
    assert unmeasured(training) == ()
    assert margin(training) == MEASURED_MARGIN


@pytest.mark.parametrize(
    ("zero", "keys", "name"),
    [
        ({"stage": 3, "zero_quantized_weights": True}, {}, "quantized weights"),
        ({"stage": 3, "zero_quantized_gradients": True}, {}, "quantized gradients"),
        ({"stage": 2, "round_robin_gradients": True}, {}, "round_robin_gradients"),
        ({"stage": 3, "offload_param": {"device": "cpu"}}, {}, "parameter offload alone"),
        (
            {"stage": 2},
            {"communication_data_type": "fp32"},
            "gradients sent in another type",
        ),
        (
            {"stage": 2},
            {"settings": ModelSettings(trainable_parameters=1_000_000)},
            "the place of the trained parameters",
        ),
    ],
)
def test_what_no_row_has_is_named_and_widens_the_margin(
    zero: dict[str, Any], keys: dict[str, Any], name: str
) -> None:
    training = job(zero, **keys)
    assert name in unmeasured(training)
    assert margin(training) == UNMEASURED_MARGIN


def test_communicators_are_counted_where_ranks_talk() -> None:
    training = job({"stage": 2})
    real, alone = (
        predict_memory(training, Surroundings(device=H100, emulated=emulated))
        for emulated in (False, True)
    )
    assert real.device.outside_bytes - alone.device.outside_bytes == pytest.approx(GIB, rel=0.02)


def test_local_ranks_share_the_host() -> None:
    training = job({"stage": 2, "offload_optimizer": {"device": "cpu"}})
    host = predict_memory(training, Surroundings(device=H100, local_ranks=8)).host
    assert host.total_bytes == 8 * host.rank_bytes


def test_an_estimate_says_whether_it_fits_only_under_a_ceiling() -> None:
    training = job({"stage": 2})
    estimate = predict_memory(training, Surroundings(device=H100))
    assert estimate.fits is None


@pytest.mark.parametrize(
    ("checkpointing", "advice"), [(False, "activations: "), (True, "the logits: ")]
)
def test_at_a_peak_in_the_loss_the_advice_names_what_weighs_most(
    checkpointing: bool, advice: str
) -> None:
    settings = ModelSettings(activation_checkpointing=checkpointing)
    training = job({"stage": 3}, model="125m", settings=settings)
    device = predict_memory(training, Surroundings(device=H100)).device
    assert device.part == Part.LOSS
    assert (device.items["activations"] > device.items["logits"]) is not checkpointing
    assert device.advice.startswith(advice)


def test_fragmentation_counts_in_the_verdict() -> None:
    """The peak alone would fit, but no segment is free where it is needed."""
    training = job({"stage": 2}, model="7b")
    estimate = predict_memory(training, Surroundings(device=H100), find_limit=True)
    assert estimate.device.limit_bytes is not None
    peak = estimate.device.peak_allocated_bytes
    assert peak < estimate.device.limit_bytes <= (estimate.device.peak_reserved_bytes or 0)
    ceiling = round(peak * 1.012) + estimate.device.outside_bytes
    pressed = predict_memory(training, Surroundings(device=H100, ceiling_bytes=ceiling)).device
    assert pressed.fits is False
    assert pressed.judged is not None
    assert pressed.judged.ran_out is not None
    assert pressed.judged.ran_out.allocated_bytes < peak


def test_a_job_that_gives_back_cache_in_every_step_runs_but_does_not_fit() -> None:
    training = job({"stage": 3}, model="7b")
    estimate = predict_memory(training, Surroundings(device=H100), find_limit=True).device
    assert estimate.limit_bytes is not None
    ceiling = estimate.limit_bytes + estimate.outside_bytes
    surroundings = Surroundings(device=H100, ceiling_bytes=ceiling)
    pressed = predict_memory(training, surroundings)
    assert (pressed.device.fits, pressed.device.runs) == (False, True)


def test_screening_and_replay_speak_the_same_language() -> None:
    training = job({"stage": 2}, model="7b")
    surroundings = Surroundings(device=H100, ceiling_bytes=70 * GIB)
    screened, replayed = (f(training, surroundings) for f in (screen_memory, predict_memory))
    assert set(screened.device.items) | set(replayed.device.items) <= set(ITEM_NAMES)
    assert screened.device.items["weights"] == replayed.device.items["weights"]
    assert set(screened.to_json()) == set(replayed.to_json())
    assert screened.host == replayed.host


@pytest.mark.parametrize(
    "change",
    [{"tokens": 2}, {"stage": 3}],
    ids=["twice the tokens", "another stage"],
)
def test_screening_does_not_mix_up_jobs(change: dict[str, int]) -> None:
    """Summaries are remembered: a job must not get another one's."""

    def screen(training: Training) -> int:
        return screen_memory(training, Surroundings(device=H100)).device.peak_allocated_bytes

    first = job({"stage": 2})
    other = replace(first, micro_batch_size=2) if "tokens" in change else job({"stage": 3})
    assert screen(first) != screen(other)
    assert screen(first) == screen(job({"stage": 2}))
