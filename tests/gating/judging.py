"""Judging a config's memory in a test, in one call."""

from dataclasses import dataclass
from typing import Any

from autotune.gating.fit.memory import memory_findings
from autotune.job.assumed_shape import assumed_shape
from autotune.job.job import Job
from autotune.job.model_shape import ModelShape, load_model_shape
from autotune.job.resolve import RecordedJob, ResolvedJob, resolve_job
from autotune.lint.check import verdict_of
from autotune.lint.finding import Finding, Verdict
from autotune.lint.subject import Launch, Subject
from autotune.planning.memory_answer import MemoryAnswer, judge_memory
from autotune.planning.planned_job import PlannedJob, planned_job

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The answer about a config's memory, and the gate's findings about it."""

    answer: MemoryAnswer
    findings: tuple[Finding, ...]

    @property
    def memory(self) -> dict[str, Any] | None:
        """As plan and gate print it."""
        return self.answer.to_json()


def subject(ds_config: dict[str, Any], **launch: Any) -> Subject:
    """Return a subject; `launch` are fields of `Launch`."""
    return Subject(config=ds_config, launch=Launch(**({"gpus": 8, "seq_len": 2_048} | launch)))


def resolved(
    ds_config: dict[str, Any],
    *,
    model: str | float | ModelShape | None = "7b",
    device: str | None = "a100-80gb",
    host_gib: float | None = None,
    record: RecordedJob | None = None,
    **options: Any,
) -> ResolvedJob:
    """Return a resolved job.

    Args:
        ds_config: the config.
        model: a preset, a shape, or a number of parameters.
        device: a name in the catalogue.
        host_gib: of a node.
        record: the job of a record.
        options: fields of `Job`; 8 GPUs and 2,048 tokens unless they are given.
    """
    shape = None
    if isinstance(model, str):
        shape = load_model_shape(model)
    elif model is not None:
        shape = model if isinstance(model, ModelShape) else assumed_shape(model)
    described = Job(
        **{
            "gpus": 8,
            "seq_len": 2_048,
            "gpu_type": device,
            "host_memory": None if host_gib is None else f"{host_gib}GiB",
            **options,
        }
    )
    subject = Subject(config=ds_config)
    return resolve_job(described, subject=subject, shape=shape, record=record)


def planned(ds_config: dict[str, Any], **options: Any) -> PlannedJob:
    """Return a planned job; options as for `resolved`."""
    return planned_job(resolved(ds_config, **options))


def judge(ds_config: dict[str, Any], **options: Any) -> Judgement:
    """Judge a config on devices of the catalogue; options as for `resolved`."""
    job = resolved(ds_config, **options)
    answer = judge_memory(job)
    return Judgement(answer=answer, findings=tuple(memory_findings(job.subject, answer)))


def verdict(judgement: Judgement) -> Verdict:
    """Return the verdict of the findings about memory."""
    return verdict_of(judgement.findings)


def fields(judgement: Judgement) -> list[str]:
    """Return the fields of the findings."""
    return [finding.field for finding in judgement.findings]
