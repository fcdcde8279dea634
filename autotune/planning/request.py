"""The request of `autotune plan`, and its job on any number of devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from autotune.errors import HardwareError, JobError
from autotune.job.base import read_base
from autotune.job.device import Device
from autotune.job.job import Job
from autotune.job.resolve import ResolvedJob, launcher_of, resolve_job
from autotune.job.resolved_workload import workload_of
from autotune.job.workload import Workload
from autotune.lint.subject import Subject
from autotune.planning.planned_job import speed_surroundings
from autotune.predict.gpu_counts import MAX_GPUS
from autotune.predict.links.communication import network_of
from autotune.predict.links.networks import Network
from autotune.predict.memory.predict import Surroundings
from autotune.predict.throughput import SpeedSurroundings
from autotune.predict.training_job import ModelSettings


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """Inputs of a plan."""

    job: Job = field(default_factory=Job)
    """The options; a field that is None is read from the other sources."""
    job_file: Path | None = None
    """None looks for `autotune.yaml` in the current folder."""
    ds_config: Path | Mapping[str, Any] | None = None
    """The config to plan; with a space its base."""
    space: str | None = None
    """A search space to plan instead: a name, or a YAML file."""

    def __post_init__(self) -> None:
        gpus = self.job.gpus
        if gpus is not None and gpus > MAX_GPUS:
            raise HardwareError(f"--gpus {gpus}: must be 1 to {MAX_GPUS}")
        if self.ds_config is None and self.space is None:
            raise HardwareError("nothing to plan: give a DS_CONFIG, or --space NAME or FILE")

    @cached_property
    def subject(self) -> Subject | None:
        """The ds_config, with the launch settings of its file; None without one.

        Raises:
            ConfigError: it cannot be read.
        """
        if self.ds_config is None:
            return None
        return read_base(self.ds_config, launcher=launcher_of(self.job, self.job_file))

    @property
    def base(self) -> Mapping[str, Any]:
        """The ds_config; empty without one."""
        return {} if self.subject is None else self.subject.config

    @cached_property
    def resolved(self) -> ResolvedJob:
        """The job, completed.

        Raises:
            AutotuneError: a source is wrong; every fault is named.
        """
        resolved = resolve_job(self.job, subject=self.subject, job_file=self.job_file)
        missing = [
            f"{option}: missing; give it, or write it into autotune.yaml"
            for option, value in (
                ("--model", resolved.shape or resolved.not_judged),
                ("--gpus", resolved.site.gpus),
                ("--gpu-type", resolved.site.device),
            )
            if value is None
        ]
        if missing:
            raise JobError(*missing)
        return resolved

    def on(self, gpus: int) -> "PlanRequest":
        """Return the request on another number of devices, in nodes as large as these."""
        job, nodes = self.job, self.job.nodes
        if nodes and self.job.gpus:
            per_node = self.job.gpus // nodes
            job = replace(job, nodes=None, gpus_per_node=min(per_node, gpus))
        if job.gpus_per_node and gpus % job.gpus_per_node:
            job = replace(job, gpus_per_node=None)
        return replace(self, job=replace(job, gpus=gpus))

    @cached_property
    def workload(self) -> Workload:
        """The workload of a study of the job.

        Raises:
            WorkloadError: it cannot be trained.
        """
        return workload_of(self.resolved)

    @property
    def gpus(self) -> int:
        """Devices of the whole job."""
        assert self.resolved.site.gpus is not None
        return self.resolved.site.gpus

    @property
    def device(self) -> Device:
        """What every rank runs on."""
        assert self.resolved.site.device is not None
        return self.resolved.site.device

    @property
    def network(self) -> Network:
        """The network between nodes.

        Raises:
            HardwareError: unknown.
        """
        return network_of(self.device, self.resolved.site.link)

    def settings(self, chosen: Mapping[str, Any]) -> ModelSettings:
        """Return the model settings of a proposal.

        Args:
            chosen: what the proposal sets; the job sets the rest.
        """
        job = self.resolved.job
        own = {
            "activation_checkpointing": job.activation_checkpointing,
            "attn_implementation": job.attn_implementation,
        }
        trained = self.resolved.subject.launch.num_trainable
        return replace(ModelSettings.of_trial({**own, **chosen}), trainable_parameters=trained)

    @property
    def surroundings(self) -> Surroundings:
        """Device, ceiling and host of a rank of a study; a study enforces a default ceiling too."""
        site = self.resolved.site
        assert site.ranks_per_node is not None
        return Surroundings(
            device=self.device,
            ceiling_bytes=site.ceiling_bytes,
            local_ranks=site.ranks_per_node,
            host_bytes=site.host_bytes,
        )

    @cached_property
    def speed_surroundings(self) -> SpeedSurroundings:
        """Device, links and host that decide the speed of a rank.

        Raises:
            HardwareError: the network is unknown, or the probe is of another device.
        """
        return speed_surroundings(self.resolved.site)
