"""What a subject means to the memory model: one training job, or several where not all was said.

What a user left open is taken at its leanest, so that an error is one whatever was meant; each
such choice is named.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from autotune import dotted
from autotune.ds_config.auto import resolve_auto
from autotune.errors import AutotuneError, NotJudgedError
from autotune.gate.fit.batch import Batch, read_batch
from autotune.gate.fit.job_defaults import (
    DEFAULT_OPTIMIZER,
    PRECISION_SECTIONS,
    data_parallel_ranks,
    local_ranks,
    optimizer_type,
    precision,
    precision_is_open,
    sharding_ranks,
    tensor_parallel,
    tokens_of_rank,
)
from autotune.gate.fit.recorded import Recorded, completed
from autotune.gate.fit.shape import shape_of_rank
from autotune.job.device import Device
from autotune.job.model_shape import ModelShape
from autotune.job.workload import Workload
from autotune.lint.subject import Launch, Launcher, Subject
from autotune.predict.assumed_shape import ASSUMED
from autotune.predict.memory.estimate import MemoryEstimate
from autotune.predict.memory.predict import Surroundings, predict_memory, screen_memory
from autotune.predict.memory.verdict import assumptions
from autotune.predict.training_job import ModelSettings, Training, read_training

ASSUMED_ACTIVATIONS = 2 / 3
"""Of the activations of an assumed shape; with it, no job in a hundred published ones that ran is
found over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job on known hardware."""

    ds_config: Mapping[str, Any]
    """Without `"auto"`, and with the batch resolved."""
    workload: Workload
    batch: Batch
    device: Device
    gpus: int
    """Of the whole job."""
    local_ranks: int
    """Processes of a node, whatever they split."""
    model_parallel: int
    """Devices that share one copy of the model: tensor parallel x pipeline stages."""
    highest_stage: int
    """Of ZeRO; pipelines refuse more than 1 (runtime/pipe/engine.py)."""
    host_bytes: int | None
    settings: tuple[ModelSettings, ...]
    """What may be set in the model."""
    unsure: float
    """Share of the activations that the model may do without: one of another shape, but as large;
    or one that keeps its checkpoints on the host."""
    assumed: tuple[str, ...]
    """What nobody said, and what was taken instead."""
    as_recorded: tuple[str, ...] = ()
    """Those of them that a record says; the others are at their leanest."""

    def training(self, settings: ModelSettings, put: Mapping[str, Any] | None = None) -> Training:
        """Return what a rank holds, with dotted keys of the config changed.

        Raises:
            ConfigError: the config cannot be read.
        """
        config = dotted.updated(self.ds_config, put) if put else self.ds_config
        training = read_training(config, self.workload, settings)
        return _with_state_size(training, self.workload.optimizer)

    def predict(self, training: Training) -> MemoryEstimate:
        """Return the estimate by replay, under the device's whole memory.

        Of an assumed shape nobody knows where its tensors would lie: what fits is then decided by
        the peak and its margin, without replays under the limit.
        """
        surroundings = self._surroundings
        if not is_assumed(training):
            return self._on_this_host(predict_memory(training, surroundings))
        estimate = predict_memory(training, replace(surroundings, ceiling_bytes=None))
        device = replace(estimate.device, ceiling_bytes=self.device.memory_bytes)
        return self._on_this_host(replace(estimate, device=device))

    def screen(self, training: Training) -> MemoryEstimate:
        """Return the estimate by formulas, in a fraction of a millisecond."""
        return self._on_this_host(screen_memory(training, self._surroundings))

    @property
    def _surroundings(self) -> Surroundings:
        return Surroundings(
            device=self.device,
            ceiling_bytes=self.device.memory_bytes,
            local_ranks=self.local_ranks,
            host_bytes=self.host_bytes,
        )

    def _on_this_host(self, estimate: MemoryEstimate) -> MemoryEstimate:
        """Count all processes of a node: those that split a model have a host share each."""
        return replace(estimate, host=replace(estimate.host, local_ranks=self.local_ranks))


def is_assumed(training: Training) -> bool:
    """Whether the shape was assumed from a number of parameters."""
    return bool(training.model.hf_config.get(ASSUMED))


def read_job(
    subject: Subject,
    *,
    shape: ModelShape | None,
    device: Device | None,
    host_bytes: int | None,
    recorded: Recorded | None = None,
) -> Job:
    """Return the job that a subject describes.

    Args:
        subject: the config and its launch.
        shape: the model's.
        device: what every rank runs on.
        host_bytes: memory of one node.
        recorded: taken where the launch does not say.

    Raises:
        NotJudgedError: what is needed was not said, or the config cannot be read.
    """
    recorded = recorded or Recorded()
    subject, as_recorded = completed(subject, recorded)
    launch = subject.launch
    if shape is None or device is None or launch.gpus is None:
        raise NotJudgedError(_missing(launch, shape, device))
    ranks = data_parallel_ranks(subject)
    shards = sharding_ranks(subject, ranks)
    tensor, stages = tensor_parallel(subject), launch.pipeline_stages or 1
    part, assumed = shape_of_rank(shape, tensor_parallel=tensor, pipeline_stages=stages)
    batch, optimizer = read_batch(subject, ranks=ranks), optimizer_type(subject)
    try:
        workload = Workload(
            model=part,
            seq_len=tokens_of_rank(subject, part),
            global_batch_size=batch.micro * batch.accumulation * shards,
            world_size=shards,
            precision=precision(subject, device),
            optimizer={"type": optimizer or DEFAULT_OPTIMIZER},
            gradient_clipping=1.0,
        )
        job = Job(
            ds_config=_readable(subject, workload, batch),
            workload=workload,
            batch=batch,
            device=device,
            gpus=launch.gpus,
            local_ranks=local_ranks(launch),
            model_parallel=tensor * stages,
            highest_stage=1 if stages > 1 else 3,
            host_bytes=host_bytes,
            settings=_settings(
                launch, shape, split=tensor * stages, attention=recorded.attn_implementation
            ),
            unsure=_unsure(subject, part),
            assumed=(*assumed, *as_recorded, *_unsaid(subject, workload, batch)),
            as_recorded=as_recorded,
        )
        job.training(job.settings[0])
    except NotJudgedError:
        raise
    except AutotuneError as error:
        raise NotJudgedError(f"memory is not judged: {error.faults[0]}") from error
    return job


def _unsaid(subject: Subject, workload: Workload, batch: Batch) -> Iterator[str]:
    """Yield what neither config, launch nor record says, and what is taken for it."""
    launch = subject.launch
    if launch.seq_len is None:
        yield f"sequences of {workload.seq_len} tokens (--seq-len is not given)"
    if not batch.is_said:
        yield f"a micro batch of {batch.micro} (none is given)"
    if optimizer_type(subject) is None:
        yield f"{DEFAULT_OPTIMIZER} (no optimizer is given)"
    if precision_is_open(subject):
        yield f"{workload.precision} (--hf-args is not given)"
    is_adapted = (launch.num_trainable or math.inf) < (launch.num_parameters or math.inf)
    if is_adapted and launch.activation_checkpointing is None:
        # Of a model that is trained as a whole "ok" means that it fits without, too.
        yield "adapters with activation checkpointing (--activation-checkpointing is not given)"


def _missing(launch: Launch, shape: ModelShape | None, device: Device | None) -> str:
    missing = {
        "--model or --params": shape is None,
        "--gpus": launch.gpus is None,
        "--gpu-type or --gpu-memory": device is None,
    }
    names = ", ".join(name for name, is_missing in missing.items() if is_missing)
    return f"memory is not judged: give {names}"


def _unsure(subject: Subject, shape: ModelShape) -> float:
    # runtime/activation_checkpointing/checkpointing.py; only models that call it obey.
    if subject.value("activation_checkpointing.cpu_checkpointing") is True:
        return 1.0
    return ASSUMED_ACTIVATIONS if shape.hf_config.get(ASSUMED) else 0.0


def _with_state_size(training: Training, optimizer: Mapping[str, Any]) -> Training:
    """Return the job with the states of optimizers that only a program can pass."""
    kind = str(optimizer.get("type", "")).lower()
    if "8bit" in kind:
        return replace(training, moment_bytes=1)
    if "adafactor" in kind:
        return replace(training, num_moments=0)
    return training


def _readable(subject: Subject, workload: Workload, batch: Batch) -> dict[str, Any]:
    """Return the config with `"auto"` resolved and the batch as it was found."""
    config = dict(subject.config)
    for key in ("train_batch_size", "optimizer"):
        if key == "train_batch_size" or subject.section(key) is None:
            config.pop(key, None)
    hf = subject.launch.launcher is Launcher.HF
    if hf and not config.keys() & PRECISION_SECTIONS and workload.precision != "fp32":
        # accelerate/utils/dataclasses.py: set_mixed_precision adds the missing section.
        config[workload.precision] = {"enabled": True}
    return resolve_auto(config, workload) | {
        "train_micro_batch_size_per_gpu": batch.micro,
        "gradient_accumulation_steps": batch.accumulation,
    }


def _settings(
    launch: Launch, shape: ModelShape, *, split: int, attention: str | None
) -> tuple[ModelSettings, ...]:
    """Return what may be set in the model, the leanest first."""
    trainable = launch.num_trainable
    whole = launch.num_parameters or shape.num_parameters
    if trainable is not None:
        trainable = None if trainable >= whole else max(trainable // split, 1)
    checkpointing = launch.activation_checkpointing
    if checkpointing is None and launch.hf_args is not None:
        said = launch.hf_args.get("gradient_checkpointing")
        checkpointing = said if isinstance(said, bool) else None
    base = ModelSettings(trainable_parameters=trainable, attn_implementation=attention)
    found = assumptions(base, activation_checkpointing=checkpointing)
    if trainable is not None and checkpointing is not None:
        # Nobody says where the trained parameters lie: the leanest place is on top.
        found = (*found, replace(found[0], trained_on_top=True))
    return found
