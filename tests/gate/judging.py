"""Judging a config's memory in a test, in one call."""

from typing import Any

from autotune.gate.fit.memory import MemoryJudgement, MemorySetting, judge_memory
from autotune.job.assumed_shape import assumed_shape
from autotune.job.ceiling import GIB
from autotune.job.device import find_device
from autotune.job.model_shape import ModelShape, load_model_shape
from autotune.lint.check import verdict_of
from autotune.lint.finding import Verdict
from autotune.lint.subject import Launch, Subject

TOP = ("train_batch_size", "gradient_accumulation_steps", "fp16", "bf16", "optimizer")
"""Keys that do not belong to `zero_optimization`."""
ADAM = {"type": "AdamW", "params": {"lr": 1e-5}}


def config(stage: int, *, micro: int | str = 1, **keys: Any) -> dict[str, Any]:
    """Return a bf16 config with AdamW; other keys than `TOP` go to `zero_optimization`."""
    zero = {key: keys.pop(key) for key in tuple(keys) if key not in TOP}
    return {
        "train_micro_batch_size_per_gpu": micro,
        "bf16": {"enabled": True},
        "optimizer": ADAM,
        "zero_optimization": {"stage": stage} | zero,
    } | keys


def subject(ds_config: dict[str, Any], **launch: Any) -> Subject:
    """Return a subject; `launch` are fields of `Launch`."""
    return Subject(config=ds_config, launch=Launch(**({"gpus": 8, "seq_len": 2_048} | launch)))


def judge(
    ds_config: dict[str, Any],
    *,
    model: str | float | ModelShape = "7b",
    device: str = "a100-80gb",
    host_gib: float | None = None,
    **launch: Any,
) -> MemoryJudgement:
    """Judge a config on devices of the catalogue.

    Args:
        ds_config: the config.
        model: a preset, a shape, or a number of parameters.
        device: a name in the catalogue.
        host_gib: of a node.
        launch: fields of `Launch`; 8 GPUs and 2,048 tokens unless told otherwise.
    """
    return judge_memory(
        subject(ds_config, **launch), setting=setting(model, device=device, host_gib=host_gib)
    )


def setting(
    model: str | float | ModelShape, *, device: str = "a100-80gb", host_gib: float | None = None
) -> MemorySetting:
    """Return what memory is judged by."""
    if isinstance(model, str):
        shape = load_model_shape(model)
    else:
        shape = model if isinstance(model, ModelShape) else assumed_shape(model)
    host = None if host_gib is None else round(host_gib * GIB)
    return MemorySetting(shape=shape, device=find_device(device), host_bytes=host)


def verdict(judgement: MemoryJudgement) -> Verdict:
    """Return the verdict that memory alone gives."""
    return verdict_of(judgement.findings)


def fields(judgement: MemoryJudgement) -> list[str]:
    """Return the fields of the findings."""
    return [finding.field for finding in judgement.findings]
