"""Plan one ds_config: its memory and its speed."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from autotune.errors import HardwareError, NotJudgedError
from autotune.job.batch import ACCUMULATION, MICRO_BATCH, TRAIN_BATCH
from autotune.job.device import Device
from autotune.job.resolve import ResolvedJob
from autotune.job.resolved_workload import require_trainable
from autotune.lint.check import lint
from autotune.lint.finding import Finding, Severity
from autotune.lint.subject import Subject
from autotune.planning.memory_answer import MemoryAnswer, judge_memory
from autotune.planning.planned_job import PlannedJob, planned_job
from autotune.planning.request import PlanRequest
from autotune.predict.gpu_counts import smallest_fitting
from autotune.predict.memory.estimate import MemoryEstimate
from autotune.predict.memory.fit import Answer, predict_fit
from autotune.predict.memory.predict import predict_memory
from autotune.predict.throughput import Throughput, predict_throughput
from autotune.predict.training_job import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPlan:
    """Predicted memory and speed of a ds_config; None where nothing is predicted."""

    resolved: ResolvedJob
    answer: MemoryAnswer
    """The same as the gate's."""
    estimate: MemoryEstimate | None
    """Of the job that decides the answer, with the smallest limit of its allocator."""
    training: Training | None
    throughput: Throughput | None
    smallest_gpus: int | None
    """The smallest number of GPUs of this type on which it fits, at the same micro batch."""
    replaced: Mapping[str, int] = field(default_factory=dict)
    """Batch sizes of the config that `--global-batch-size` replaces."""
    errors: tuple[Finding, ...] = ()
    """Errors of the rules of `autotune gate`; the estimate covers the keys that can be read."""

    @property
    def fits(self) -> bool:
        """Whether it fits or is not judged."""
        return self.answer.answer is not Answer.DOES_NOT_FIT

    @property
    def device(self) -> Device:
        """What every rank runs on."""
        assert self.resolved.site.device is not None
        return self.resolved.site.device

    @property
    def batch(self) -> Mapping[str, int]:
        """Batch sizes of the plan, by DeepSpeed's keys."""
        return {} if self.training is None else _batch(self.training)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values: what `autotune plan DS_CONFIG --json` prints."""
        memory = self.answer.to_json()
        if memory is not None and self.estimate is not None:
            memory["device"]["limit_bytes"] = self.estimate.device.limit_bytes
        training = self.training
        return {
            "memory": memory,
            "memory_reason": self.answer.reason,
            "throughput": None if self.throughput is None else self.throughput.to_json(),
            "fits": None if self.answer.answer is Answer.NOT_JUDGED else self.fits,
            "assumed": list(self.answer.assumed),
            "job": self.resolved.to_json(),
            "smallest_gpus": self.smallest_gpus,
            "errors": [error.to_json() for error in self.errors],
            "device": self.device.name,
            "cpu_threads": asdict(self.resolved.site.cpu_threads),
            "workload": None if training is None else _workload(training, self.batch),
            "model_settings": None
            if training is None
            else {
                "activation_checkpointing": training.activation_checkpointing,
                "attn_implementation": training.attn_implementation,
            },
        }


def plan_config(request: PlanRequest) -> ConfigPlan:
    """Predict memory and speed of the request's ds_config.

    Raises:
        AutotuneError: the request or a file of it is wrong; every fault is named.
    """
    resolved = request.resolved
    _require_readable(resolved)
    answer = judge_memory(resolved)
    job, shown = answer.job, answer.shown
    findings = lint(_as_planned(resolved))
    errors = tuple(finding for finding in findings if finding.severity is Severity.ERROR)
    if job is None or shown is None:
        return ConfigPlan(
            resolved=resolved,
            answer=answer,
            estimate=None,
            training=None,
            throughput=None,
            smallest_gpus=None,
            errors=errors,
        )
    training = shown.training
    estimate = predict_memory(training, job.surroundings, find_limit=True)
    return ConfigPlan(
        resolved=resolved,
        answer=answer,
        estimate=replace(estimate, host=shown.estimate.host),
        training=training,
        throughput=_throughput(job, training),
        smallest_gpus=smallest_fitting(lambda gpus: _fits(job, training, gpus)),
        replaced=_replaced(resolved.subject.config, training),
        errors=errors,
    )


def _require_readable(resolved: ResolvedJob) -> None:
    """Make sure that the ds_config can be read; the gate reports the same as an error.

    Raises:
        AutotuneError: it cannot; every fault is named.
    """
    require_trainable(resolved)
    # What is not modelled is not judged, which `judge_memory` says.
    with suppress(NotJudgedError):
        planned_job(resolved)


def _as_planned(resolved: ResolvedJob) -> Subject:
    """Return the config with the batch sizes that `--global-batch-size` sets."""
    subject, batch, given = resolved.subject, resolved.batch, resolved.job.global_batch_size
    if given is None or batch is None:
        return subject
    sizes = {TRAIN_BATCH: given, MICRO_BATCH: batch.micro, ACCUMULATION: batch.accumulation}
    return replace(subject, config={**subject.config, **sizes})


def _throughput(job: PlannedJob, training: Training) -> Throughput | None:
    """Return the predicted speed; None on a device of which only the memory is known."""
    surroundings = job.speed_surroundings
    try:
        return predict_throughput(training, surroundings)
    except HardwareError:
        return None


def _workload(training: Training, batch: Mapping[str, int]) -> dict[str, Any]:
    return {
        "model": training.model.name,
        "gpus": training.world_size,
        "seq_len": training.seq_len,
        "precision": training.precision,
        "micro_batch_size": training.micro_batch_size,
        "gradient_accumulation_steps": training.accumulation,
        "global_batch_size": batch[TRAIN_BATCH],
    }


def _batch(training: Training) -> dict[str, int]:
    per_step = training.micro_batch_size * training.accumulation
    return {
        TRAIN_BATCH: per_step * training.world_size,
        MICRO_BATCH: training.micro_batch_size,
        ACCUMULATION: training.accumulation,
    }


def _replaced(base: Mapping[str, Any], training: Training) -> dict[str, int]:
    """Return the batch sizes of the config that the plan replaces."""
    return {
        key: base[key]
        for key, size in _batch(training).items()
        if base.get(key, "auto") not in ("auto", size)
    }


def _fits(job: PlannedJob, training: Training, gpus: int) -> bool:
    """Whether the same micro step fits on another number of devices."""
    ranks = gpus // job.model_parallel
    if not ranks or gpus % job.model_parallel or ranks % training.expert_parallel_size:
        return False
    site = job.site.with_gpus(gpus, ranks_per_node=job.ranks_per_node)
    surroundings = replace(job, site=site).surroundings
    fit = predict_fit(replace(training, world_size=ranks), surroundings, unsure=job.unsure)
    return fit.answer is Answer.FITS
