"""Workloads for tests, by the way every command gets them."""

from collections.abc import Mapping
from typing import Any

from autotune.job.job import Job
from autotune.job.model_shape import ModelShape
from autotune.job.resolve import resolve_job
from autotune.job.resolved_workload import workload_of
from autotune.job.workload import Workload
from autotune.lint.subject import Subject


def resolve_workload(
    model: ModelShape,
    *,
    gpus: int,
    base: Mapping[str, Any],
    device_kind: str = "cuda",
    **options: Any,
) -> Workload:
    """Return the workload of a model on some ranks; `options` are fields of `Job`."""
    resolved = resolve_job(Job(gpus=gpus, **options), subject=Subject(config=base), shape=model)
    return workload_of(resolved, device_kind=device_kind)
