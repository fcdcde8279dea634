"""What `autotune plan` is asked, resolved to devices, a ceiling and a workload."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from autotune.ds_config.build import BATCH_KEYS, build_ds_config
from autotune.ds_config.read import read_ds_config
from autotune.errors import HardwareError, WorkloadError
from autotune.job.ceiling import parse_bytes, parse_ceiling
from autotune.job.cpu_threads import CpuThreads, RankLauncher, assumed_cpu_threads
from autotune.job.device import Device, find_gpu, load_devices
from autotune.job.model_shape import ModelShape, load_model_shape
from autotune.job.workload import Workload, resolve_workload
from autotune.predict.gpu_counts import GPUS_PER_NODE, MAX_GPUS
from autotune.predict.links.communication import network_of
from autotune.predict.links.networks import Network
from autotune.predict.links.probe_file import check_device, read_probe
from autotune.predict.memory.predict import Surroundings
from autotune.predict.throughput import SpeedSurroundings
from autotune.predict.training_job import ModelSettings, said_precision
from autotune.space.searchable import ATTENTIONS


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What a user asks for; every field is an option of `autotune plan`."""

    model: str
    gpus: int
    gpu_type: str
    ds_config: Path | None = None
    space: str | None = None
    seq_len: int | None = None
    global_batch_size: int | None = None
    memory_ceiling: str = "90%"
    nodes: int | None = None
    """None packs `gpus_per_node` ranks a node."""
    gpus_per_node: int | None = None
    """None is 8."""
    link: str | None = None
    """Between nodes, such as ib-ndr-400; None takes what such devices usually come with."""
    probe: Path | None = None
    """What `autotune probe` measured on the pool; None takes the catalogue."""
    host_memory: str | None = None
    """Of one node; None asks for no verdict on it."""
    cpu_threads: int | None = None
    """CPU threads of a rank (`OMP_NUM_THREADS`); None is what the launcher sets, else an assumed
    fair share."""
    launcher: RankLauncher | None = None
    """What starts the ranks; None is not known."""
    activation_checkpointing: bool = False
    attn_implementation: str | None = None
    trainable_parameters: int | None = None
    devices: Path | None = None
    """A YAML file with more devices."""

    def __post_init__(self) -> None:
        faults = []
        if not 1 <= self.gpus <= MAX_GPUS:
            faults.append(f"--gpus {self.gpus}: must be 1 to {MAX_GPUS}")
        for name, value in (
            ("--nodes", self.nodes),
            ("--gpus-per-node", self.gpus_per_node),
            ("--seq-len", self.seq_len),
            ("--global-batch-size", self.global_batch_size),
            ("--trainable-params", self.trainable_parameters),
            ("--cpu-threads", self.cpu_threads),
        ):
            if value is not None and value < 1:
                faults.append(f"{name} {value}: must be at least 1")
        attention = self.attn_implementation
        if attention is not None and attention not in ATTENTIONS:
            known = ", ".join(ATTENTIONS)
            faults.append(f"--attn-implementation {attention}: must be one of {known}")
        if not faults and self.nodes and self.gpus % self.nodes:
            faults.append(f"--nodes {self.nodes}: does not divide {self.gpus} GPUs")
        if self.nodes and self.gpus_per_node:
            faults.append("--nodes and --gpus-per-node: one follows from the other; give one")
        if self.ds_config is None and self.space is None:
            faults.append("nothing to plan: give a DS_CONFIG, or --space NAME or FILE")
        if faults:
            raise HardwareError(*faults)

    @cached_property
    def base(self) -> Mapping[str, Any]:
        """The user's ds_config; empty without one.

        Raises:
            ConfigError: it cannot be read.
        """
        return read_ds_config(self.ds_config) if self.ds_config else {}

    @cached_property
    def shape(self) -> ModelShape:
        """The model.

        Raises:
            WorkloadError: there is no such model, its config lacks dimensions, or it has fewer
                parameters than are to be trained.
        """
        shape = load_model_shape(self.model)
        trained, all_of_them = self.trainable_parameters, shape.num_parameters
        if trained is not None and trained > all_of_them:
            raise WorkloadError(
                f"--trainable-params {trained}: {shape.name} has {all_of_them} parameters; give "
                "fewer, or leave the option out to train all of them"
            )
        return shape

    @cached_property
    def device(self) -> Device:
        """What every rank runs on.

        Raises:
            HardwareError: unknown, or no GPU.
        """
        extra = load_devices(self.devices) if self.devices else ()
        return find_gpu(self.gpu_type, extra=extra)

    def workload(self, gpus: int) -> Workload:
        """Return the workload on a number of ranks.

        Raises:
            WorkloadError: it cannot be trained.
        """
        return resolve_workload(
            self.shape,
            gpus=gpus,
            base=self.base,
            seq_len=self.seq_len,
            global_batch_size=self.global_batch_size,
            # A ds_config that says nothing trains in fp32; a space alone takes the preset's.
            precision=said_precision(self.base) if self.base else None,
        )

    def sized(self, config: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
        """Return a config with the batch sizes that `--global-batch-size` gives it, if it is given.

        As `autotune run` does with its `--base`: the micro batch stays, accumulation follows.

        Raises:
            ConfigError: the micro batch does not divide the sequences of a rank.
        """
        if self.global_batch_size is None:
            return dict(config)
        built = build_ds_config(config, workload, {})
        return dict(config) | {key: built[key] for key in BATCH_KEYS}

    def settings(self, *, activation_checkpointing: bool | None = None) -> ModelSettings:
        """Return what is set in the model."""
        checkpointing = self.activation_checkpointing
        if activation_checkpointing is not None:
            checkpointing = activation_checkpointing
        return ModelSettings(
            activation_checkpointing=checkpointing,
            attn_implementation=self.attn_implementation,
            trainable_parameters=self.trainable_parameters,
        )

    def local_ranks(self, gpus: int) -> int:
        """Return the ranks that share a node when there are `gpus` in all."""
        per_node = self.gpus_per_node or GPUS_PER_NODE
        if self.nodes:
            per_node = self.gpus // self.nodes
        return min(per_node, gpus)

    @cached_property
    def network(self) -> Network:
        """What lies between nodes.

        Raises:
            HardwareError: unknown.
        """
        return network_of(self.device, self.link)

    @cached_property
    def probed(self) -> Mapping[str, Any] | None:
        """What the probe's file says; None without one.

        Raises:
            HardwareError: it cannot be read, or is of another device.
        """
        if self.probe is None:
            return None
        probed = read_probe(self.probe)
        check_device(probed, self.device.name, where=f"--probe {self.probe}")
        return probed

    def speed_surroundings(self, gpus: int) -> SpeedSurroundings:
        """Return what decides the speed of `gpus` ranks.

        Raises:
            HardwareError: the network is unknown, or the probe is none.
        """
        return SpeedSurroundings.of(
            self.device,
            local_ranks=self.local_ranks(gpus),
            network=self.network.name,
            probe=self.probed,
            cpu_threads=self.threads(gpus).count,
        )

    def threads(self, gpus: int) -> CpuThreads:
        """Return the CPU threads of a rank when there are `gpus` in all."""
        return assumed_cpu_threads(
            local_ranks=self.local_ranks(gpus), given=self.cpu_threads, launcher=self.launcher
        )

    def surroundings(self, gpus: int) -> Surroundings:
        """Return what a rank runs in when there are `gpus` in all.

        Raises:
            HardwareError: the ceiling or the host's memory cannot be read.
        """
        host = self.host_memory
        return Surroundings(
            device=self.device,
            ceiling_bytes=parse_ceiling(self.memory_ceiling, device_bytes=self.device.memory_bytes),
            local_ranks=self.local_ranks(gpus),
            host_bytes=parse_bytes(host, where="--host-memory") if host else None,
        )
