from dataclasses import replace
from typing import Any

import pytest

from autotune import dotted
from autotune.gating.fit.remedies import Change, cheapest_changes, suggestion
from autotune.planning.planned_job import PlannedJob
from autotune.predict.memory.fit import Answer, Fit
from tests.gating.judging import config, judge, planned

OFFLOAD: dict[str, Any] = {"offload_optimizer": {"device": "cpu"}}


def over(ds_config: dict[str, Any], **options: Any) -> tuple[PlannedJob, Fit]:
    """Return a job that does not fit, and its fit."""
    job = planned(ds_config, **options)
    fit = job.fit(job.settings[-1])
    assert fit.answer is not Answer.FITS
    return job, fit


JOBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "too many activations": (
        config(2, micro=16, gradient_accumulation_steps=4),
        {"activation_checkpointing": False},
    ),
    "too many states": (
        config(1, micro=2),
        {"model": "13b", "device": "a100-40gb", "activation_checkpointing": True, "gpus": 16},
    ),
    "no ZeRO": (
        config(0, micro=16),
        {"model": "1.3b", "device": "v100-32gb", "activation_checkpointing": False},
    ),
    "one device": (config(3), {"gpus": 1, "device": "a100-40gb"}),
    "logits": (config(1, micro=64), {"model": "gpt2-xl", "device": "a100-40gb", "seq_len": 1_024}),
    "fragmented": (
        config(3, micro=4),
        {
            "model": "13b",
            "device": "a100-40gb",
            "activation_checkpointing": True,
            "seq_len": 4_096,
        },
    ),
    "host": (
        config(3, micro=1, **OFFLOAD),
        {"model": "13b", "host_gib": 240, "activation_checkpointing": True},
    ),
}


@pytest.fixture(params=JOBS, ids=str)
def found(request: pytest.FixtureRequest) -> tuple[PlannedJob, Fit, tuple[Change, ...]]:
    ds_config, options = JOBS[request.param]
    job, fit = over(ds_config, **options)
    changes = cheapest_changes(job, fit)
    assert changes
    return job, fit, changes


def test_a_changed_job_fits_by_replay_too(
    found: tuple[PlannedJob, Fit, tuple[Change, ...]],
) -> None:
    job, fit, changes = found
    for change in changes:
        settings = fit.settings
        if any(remedy.checkpointing for remedy in change.remedies):
            settings = replace(settings, activation_checkpointing=True)
        changed = replace(job, ds_config=dotted.updated(job.ds_config, change.put))
        assert changed.fit(settings).answer is Answer.FITS, change.text


def test_a_change_keeps_the_global_batch(found: tuple[PlannedJob, Fit, tuple[Change, ...]]) -> None:
    job, fit, changes = found
    sequences = fit.training.micro_batch_size * fit.training.accumulation
    for change in changes:
        training = job.training(fit.settings, change.put)
        assert training.micro_batch_size * training.accumulation == sequences


def test_the_cheapest_comes_first(found: tuple[PlannedJob, Fit, tuple[Change, ...]]) -> None:
    _, _, changes = found
    assert 1 <= len(changes) <= 3
    speeds = [change.speed or 0 for change in changes]
    assert speeds == sorted(speeds, reverse=True)


def test_no_change_contains_another(found: tuple[PlannedJob, Fit, tuple[Change, ...]]) -> None:
    _, _, changes = found
    texts = [{remedy.kind: remedy.put for remedy in change.remedies} for change in changes]
    for one in texts:
        others = [other for other in texts if other is not one]
        assert not any(other.items() <= one.items() for other in others)


def test_a_change_that_fits_by_formulas_alone_is_not_suggested() -> None:
    """Fragmentation may add a third to the peak of a stage 3 job; only a replay shows it."""
    ds_config, options = JOBS["fragmented"]
    job, fit = over(ds_config, **options)
    one = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4}
    assert job.screen(job.training(fit.settings, one)).fits
    changed = replace(job, ds_config=dotted.updated(job.ds_config, one))
    assert changed.fit(fit.settings).is_pressed
    assert one not in [change.put for change in cheapest_changes(job, fit)]


def test_at_most_three_changes_are_suggested() -> None:
    ds_config, options = JOBS["too many activations"]
    lines = suggestion(*over(ds_config, **options)).splitlines()
    assert len(lines) == 3
    assert lines[1].startswith(
        "train_micro_batch_size_per_gpu: 2, gradient_accumulation_steps: 32 (predicted: -"
    )
    assert lines[1].endswith("% tokens/s, 52 of 79 GiB)")
    assert all("(predicted: " in line for line in lines)


def test_checkpointing_is_suggested_only_if_it_is_not_on() -> None:
    wide = config(3, micro=16)
    (unknown,) = judge(wide).findings
    assert "activation checkpointing in the model (predicted: -" in str(unknown.suggestion)
    (known,) = judge(config(3, micro=64), activation_checkpointing=True).findings
    assert "activation checkpointing in" not in str(known.suggestion)


def test_more_devices_are_suggested_with_their_accumulation() -> None:
    one = suggestion(*over(config(3), gpus=1))
    assert "2 x a100-80gb instead of 1, the global batch grows with them (predicted: x" in one
    steps = config(3, gradient_accumulation_steps=4)
    four = suggestion(*over(steps, gpus=1))
    assert "2 x a100-80gb instead of 1, gradient_accumulation_steps: 2 (predicted: x" in four


def test_devices_that_split_a_model_are_suggested_in_whole_groups() -> None:
    ds_config = config(2, fp16={"enabled": True}, bf16={"enabled": False})
    text = suggestion(
        *over(ds_config, model="34b", device="v100-32gb", tensor_parallel=8, seq_len=128)
    )
    number = int(text.splitlines()[-1].split(" x ")[0])
    assert number > 8
    assert number % 8 == 0


def test_an_optimizer_without_a_cpu_version_is_not_offloaded() -> None:
    ds_config = config(2)
    del ds_config["optimizer"]
    text = suggestion(*over(ds_config, gpus=1, client_optimizer="Adafactor", device="t4"))
    assert "offload_optimizer" not in text


def test_a_device_of_unknown_speed_still_gets_suggestions() -> None:
    ds_config, options = JOBS["too many activations"]
    job, fit = over(ds_config, **options)
    memory_alone = replace(job, device=replace(job.device, bf16_flops=0.0, fp32_flops=0.0))
    lines = suggestion(memory_alone, fit).splitlines()
    assert lines[0] == "activation checkpointing in the model (predicted: 46 of 79 GiB)"
    assert "tokens/s" not in "".join(lines)


def test_a_pipeline_gets_no_stage_that_it_refuses() -> None:
    text = suggestion(*over(config(1), model="34b", device="a100-40gb", pipeline_stages=4))
    assert "zero_optimization.stage" not in text


def test_a_full_host_gets_less_offload() -> None:
    ds_config, options = JOBS["host"]
    text = suggestion(*over(ds_config, **options))
    assert text.splitlines()[0].startswith('zero_optimization.offload_optimizer.device: "none"')


def test_a_model_that_no_change_makes_fit_gets_a_plain_answer() -> None:
    options: dict[str, Any] = {"model": "70b", "device": "t4", "gpus": 1, "host_gib": 16}
    assert suggestion(*over(config(0), **options)) == (
        "no change of one or two keys makes it fit, nor do 4,096 GPUs; use a smaller model"
    )
