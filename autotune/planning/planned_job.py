"""A resolved job as the memory and speed models read it: what one rank trains.

Settings that the job leaves open are listed: with and without activation checkpointing, and
adapters in every layer or trained layers on top of a frozen base.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autotune import dotted
from autotune.ds_config.auto import resolve_auto
from autotune.errors import NotJudgedError
from autotune.job.assumed_shape import ASSUMED
from autotune.job.batch import ACCUMULATION, MICRO_BATCH, Batch
from autotune.job.device import Device
from autotune.job.launcher import Launcher
from autotune.job.model_shape import LEARNED_POSITIONS, ModelShape
from autotune.job.origin import Origin
from autotune.job.precision import PRECISION_SECTIONS
from autotune.job.resolve import ResolvedJob
from autotune.job.site import Site
from autotune.job.workload import Workload
from autotune.lint.subject import Launch, Subject
from autotune.planning.rank_shape import shape_of_rank
from autotune.predict.links.probe_file import check_device
from autotune.predict.memory.estimate import MemoryEstimate
from autotune.predict.memory.fit import Fit, host_odds, predict_fit
from autotune.predict.memory.predict import Surroundings, screen_memory
from autotune.predict.throughput import SpeedSurroundings
from autotune.predict.training_job import ModelSettings, Training, read_training

ASSUMED_ACTIVATIONS = 2 / 3
"""Of the activations of an assumed shape; with it, none of a hundred published jobs that ran is
judged not to fit."""
SHORTEST = 128
"""Tokens of the shortest sequence that is trained in practice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A training job on known devices."""

    resolved: ResolvedJob
    ds_config: Mapping[str, Any]
    """Without `"auto"`, and with the batch resolved."""
    workload: Workload
    """Of the ranks that ZeRO shards over, with the part of the model that one device holds."""
    batch: Batch
    device: Device
    site: Site
    model_parallel: int
    """Devices that share one copy of the model: tensor parallel x pipeline stages."""
    highest_stage: int
    """Of ZeRO; pipelines refuse more than 1 (runtime/pipe/engine.py)."""
    settings: tuple[ModelSettings, ...]
    """Possible settings of the model, the smallest in memory first."""
    unsure: float
    """Share of the activations that may be absent: those of an assumed shape, or checkpoints that
    are kept on the host."""
    shape_assumptions: tuple[str, ...] = ()

    @property
    def assumed(self) -> tuple[str, ...]:
        """Facts that no source states, a phrase each."""
        found = [*self.shape_assumptions, *self.resolved.assumed]
        if self.resolved.batch is not None and self.resolved.batch.origin is None:
            found.append(f"micro batch {self.batch.micro} (none is given)")
        return tuple(found)

    @property
    def ranks_per_node(self) -> int:
        """Processes of a node, model-parallel ranks included."""
        assert self.site.ranks_per_node is not None
        return self.site.ranks_per_node

    @property
    def gpus(self) -> int:
        """Devices of the whole job."""
        assert self.site.gpus is not None
        return self.site.gpus

    @property
    def limit_bytes(self) -> int:
        """The most a rank may use on its device."""
        assert self.site.limit_bytes is not None
        return self.site.limit_bytes

    def training(self, settings: ModelSettings, put: Mapping[str, Any] | None = None) -> Training:
        """Return the job of a rank, with dotted keys of the config changed.

        Raises:
            ConfigError: the config cannot be read.
        """
        config = dotted.updated(self.ds_config, put) if put else self.ds_config
        training = read_training(config, self.workload, settings)
        return _with_state_size(training, self.resolved.optimizer)

    def smallest(self) -> "PlannedJob":
        """Return the job with every unknown at its minimum: a lower bound of its memory."""
        job = self
        if self.resolved.is_open("seq_len"):
            workload = self.workload
            shortest = min(SHORTEST, workload.seq_len)
            job = replace(job, workload=replace(workload, seq_len=shortest))
        if self.batch.is_open:
            job = replace(job, ds_config={**job.ds_config, MICRO_BATCH: 1, ACCUMULATION: 1})
        return job

    def fit(self, settings: ModelSettings) -> Fit:
        """Return whether the job fits with these settings of the model.

        Raises:
            ConfigError: the config cannot be read.
            WorkloadError: the model cannot be traced.
        """
        fit = predict_fit(self.training(settings), self.surroundings, unsure=self.unsure)
        estimate = self._on_this_host(fit.estimate)
        return replace(
            fit, settings=settings, estimate=estimate, host_odds=host_odds(estimate.host)
        )

    def screen(self, training: Training) -> MemoryEstimate:
        """Return the estimate by formulas, in a fraction of a millisecond."""
        return self._on_this_host(screen_memory(training, self.surroundings))

    @property
    def surroundings(self) -> Surroundings:
        """Device, limit and host of a rank."""
        return Surroundings(
            device=self.device,
            ceiling_bytes=self.limit_bytes,
            local_ranks=self.ranks_per_node,
            host_bytes=self.site.host_bytes,
        )

    @property
    def speed_surroundings(self) -> SpeedSurroundings:
        """Device, links and host that decide the speed of a rank.

        Raises:
            HardwareError: the network is unknown, or the probe is of another device.
        """
        return speed_surroundings(self.site)

    def _on_this_host(self, estimate: MemoryEstimate) -> MemoryEstimate:
        """Count every process of a node: model-parallel ranks use host memory too."""
        return replace(estimate, host=replace(estimate.host, local_ranks=self.ranks_per_node))


def speed_surroundings(site: Site) -> SpeedSurroundings:
    """Return the device, links and host that decide the speed of a rank.

    Raises:
        HardwareError: the network is unknown, or the probe is of another device.
    """
    assert site.device is not None
    assert site.ranks_per_node is not None
    if site.probe is not None:
        check_device(site.probe, site.device.name, where="--probe")
    return SpeedSurroundings.of(
        site.device,
        local_ranks=site.ranks_per_node,
        network=site.link,
        probe=site.probe,
        cpu_threads=site.cpu_threads.count,
    )


def is_assumed(training: Training) -> bool:
    """Whether the shape was assumed from a number of parameters."""
    return bool(training.model.hf_config.get(ASSUMED))


def planned_job(resolved: ResolvedJob) -> PlannedJob:
    """Return a job as the memory and speed models read it.

    Raises:
        NotJudgedError: a fact is missing, or is not modelled.
        ConfigError: the config cannot be read.
        WorkloadError: the job cannot be trained.
    """
    subject, site, shape = resolved.subject, resolved.site, resolved.shape
    if resolved.not_judged is not None:
        raise NotJudgedError(resolved.not_judged)
    if shape is None or site.device is None or site.gpus is None:
        raise NotJudgedError(_missing(resolved))
    ranks = _data_parallel_ranks(subject, site.gpus)
    shards = _sharding_ranks(subject, ranks)
    tensor, stages = tensor_parallel(subject), subject.launch.pipeline_stages or 1
    part, assumptions = shape_of_rank(shape, tensor_parallel=tensor, pipeline_stages=stages)
    batch = resolved.batch or Batch(micro=1, accumulation=1, origin=None)
    workload = Workload(
        model=part,
        seq_len=_tokens_of_rank(resolved, part),
        global_batch_size=batch.micro * batch.accumulation * shards,
        world_size=shards,
        precision=resolved.precision,
        optimizer={"type": resolved.optimizer},
        gradient_clipping=1.0,
        attn_implementation=resolved.attn_implementation,
    )
    job = PlannedJob(
        resolved=resolved,
        ds_config=_readable(resolved, workload, batch),
        workload=workload,
        batch=batch,
        device=site.device,
        site=site,
        model_parallel=tensor * stages,
        highest_stage=1 if stages > 1 else 3,
        settings=_settings(subject.launch, shape, split=tensor * stages),
        unsure=_unsure(subject, part),
        shape_assumptions=assumptions,
    )
    job.training(job.settings[0])
    return job


def tensor_parallel(subject: Subject) -> int:
    """Return the devices that split every matrix."""
    given = subject.launch.tensor_parallel
    return given or _whole_number(subject, "tensor_parallel.autotp_size") or 1


def _data_parallel_ranks(subject: Subject, gpus: int) -> int:
    """Return the ranks that a batch is divided over."""
    split = tensor_parallel(subject) * (subject.launch.pipeline_stages or 1)
    if gpus % split:
        raise NotJudgedError(
            f"memory is not judged: {gpus} GPUs are not a multiple of {split}, the product of "
            "tensor parallelism and pipeline stages"
        )
    return gpus // split


def _sharding_ranks(subject: Subject, ranks: int) -> int:
    """Return how many of the ranks ZeRO shards over.

    With MiCS states are sharded inside a group and repeated in every other (runtime/zero/mics.py).
    """
    group = _whole_number(subject, "zero_optimization.mics_shard_size")
    return group if group is not None and ranks % group == 0 else ranks


def _tokens_of_rank(resolved: ResolvedJob, shape: ModelShape) -> int:
    """Return the tokens of a rank; its share of a sequence that is split.

    Megatron's tensor parallelism may split sequences outside its matrices too, and the checkpoints
    of layers (`partition_activations`); whether it does is set in the model.
    """
    subject, seq_len = resolved.subject, resolved.seq_len
    limit = shape.max_position_embeddings
    if resolved.is_open("seq_len") and limit and shape.model_type in LEARNED_POSITIONS:
        seq_len = min(seq_len, limit)
    share = (_whole_number(subject, "sequence_parallel_size") or 1) * tensor_parallel(subject)
    return max(seq_len // share, 1)


def _missing(resolved: ResolvedJob) -> str:
    missing = {
        "--model or --params": resolved.shape is None,
        "--gpus": resolved.site.gpus is None,
        "--gpu-type or --gpu-memory": resolved.site.device is None,
    }
    names = ", ".join(name for name, is_missing in missing.items() if is_missing)
    return f"memory is not judged: give {names}"


def _unsure(subject: Subject, shape: ModelShape) -> float:
    # runtime/activation_checkpointing/checkpointing.py; only models that call it obey.
    if subject.value("activation_checkpointing.cpu_checkpointing") is True:
        return 1.0
    return ASSUMED_ACTIVATIONS if shape.hf_config.get(ASSUMED) else 0.0


def _with_state_size(training: Training, optimizer: str) -> Training:
    """Return the job with the state size of a client optimizer."""
    kind = optimizer.lower()
    if "8bit" in kind:
        return replace(training, moment_bytes=1)
    if "adafactor" in kind:
        return replace(training, num_moments=0)
    return training


def _readable(resolved: ResolvedJob, workload: Workload, batch: Batch) -> dict[str, Any]:
    """Return the config with `"auto"` and the batch sizes resolved."""
    subject = resolved.subject
    config = dict(subject.config)
    for key in ("train_batch_size", "optimizer"):
        if key == "train_batch_size" or subject.section(key) is None:
            config.pop(key, None)
    config = resolve_auto(config, workload)
    by_launcher = subject.launch.launcher is Launcher.HF or not subject.config
    given = resolved.facts["precision"].origin in (Origin.OPTION, Origin.JOB_FILE)
    if given or (by_launcher and not config.keys() & PRECISION_SECTIONS):
        # accelerate/utils/dataclasses.py: set_mixed_precision adds the missing section.
        config = {k: v for k, v in config.items() if k not in PRECISION_SECTIONS}
        if workload.precision != "fp32":
            config[workload.precision] = {"enabled": True}
    return config | {MICRO_BATCH: batch.micro, ACCUMULATION: batch.accumulation}


def _settings(launch: Launch, shape: ModelShape, *, split: int) -> tuple[ModelSettings, ...]:
    """Return the possible settings of the model, the smallest in memory first."""
    trainable = launch.num_trainable
    whole = launch.num_parameters or shape.num_parameters
    if trainable is not None:
        trainable = None if trainable >= whole else max(trainable // split, 1)
    settings = ModelSettings(trainable_parameters=trainable)
    checkpointing = launch.activation_checkpointing
    if checkpointing is None:
        with_it = replace(settings, activation_checkpointing=True)
        if trainable is not None:
            return with_it, replace(settings, trained_on_top=True)
        return with_it, settings
    known = replace(settings, activation_checkpointing=checkpointing)
    if trainable is None:
        return (known,)
    # The trained parameters may be adapters in every layer, or layers on top.
    return known, replace(known, trained_on_top=True)


def _whole_number(subject: Subject, key: str) -> int | None:
    """Return a whole number of at least 1, else None."""
    number = subject.number(key)
    return int(number) if number is not None and 1 <= number < math.inf else None
