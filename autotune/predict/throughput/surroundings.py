"""What a job runs on, as far as its speed is concerned."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, pow
from typing import Any, Self

from autotune.errors import HardwareError
from autotune.job.device import Device
from autotune.predict.links.communication import Group, Links, collective_s
from autotune.predict.training_job import Training

NVME_BYTES_PER_S = 3e9
"""Of one node's drive, reading or writing: what DeepSpeed's own io reaches on common ones."""
ALONE_ADAM_ELEMENTS_PER_S = 4.8e9
"""CPUAdam of a rank that has its host to itself, with 16 threads: a probe on an H200's host."""
NODE_ADAM_ELEMENTS_PER_S = 7e9
"""CPUAdam of all ranks of a node together, bound by its memory: between what probes say, 5.7e9 with
two H200 and 32 cores on a host, 9e9 with four and 64."""
THREAD_ADAM_ELEMENTS_PER_S = 8.4e8
"""CPUAdam on one thread: emulated ranks with 4 threads. 1, 4, 8 and 16 threads of an H200's host
took 2.91, 1.06, 0.58 and 0.48 s for the step of 1.35e9 elements, 1.2 to 1.3 times less than this
and `Rates.cpu_passes` make of it: a constant factor, so `THREAD_GAIN` is theirs."""
THREAD_GAIN = 0.75
"""n threads do n to this power as much, before memory binds them: a processor's clock falls with
its busy cores, and torch's loops gain less than CPUAdam."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedSurroundings:
    """Device, links, and what the ranks of a node share."""

    device: Device
    local_ranks: int
    """Ranks that share a node."""
    links: Links
    probed_local_ranks: int | None = None
    """Ranks that shared a node, and so its CPUs, drive and bus, when a probe measured a rank's
    shares; None: as many as here."""
    cpu_adam_elements_per_s: float | None = None
    """One rank's share, from a probe; None shares `NODE_ADAM_ELEMENTS_PER_S`."""
    alone_adam_elements_per_s: float | None = None
    """Of a rank that has its host to itself, from a probe; None is not measured."""
    nvme_bytes_per_s: float | None = None
    """One rank's share, from a probe; None shares `NVME_BYTES_PER_S`."""
    host_bytes_per_s: float | None = None
    """Between one rank's device and the host, from a probe; None takes the device's."""
    cpu_threads: int | None = None
    """CPU threads of a rank; None has enough for the host's memory to bind CPUAdam, or as many as
    the probe's ranks had."""
    probed_cpu_threads: int | None = None
    """Those of the probe's ranks; None without."""
    played: bool = False
    """Whether a rank's neighbours are only played, so that the host is its own."""
    host_slowness: float = 1.0
    """How many times as long a host takes for its part of a step as those that `Rates` is from."""
    silent: bool = False
    """Nothing is really sent: what an emulated rank without timed collectives sees."""
    tensor_parallel: int = 1
    """Ranks that share each layer's matrices, within a node."""
    pipeline_stages: int = 1

    @classmethod
    def of(
        cls,
        device: Device,
        *,
        local_ranks: int,
        network: str | None = None,
        probe: Mapping[str, Any] | None = None,
        cpu_threads: int | None = None,
    ) -> Self:
        """Return surroundings by catalogue, or by what a probe of the pool measured.

        Args:
            device: of every rank.
            local_ranks: ranks that share a node.
            network: between nodes, by the catalogue's name.
            probe: what `autotune probe` wrote.
            cpu_threads: of a rank.

        Raises:
            HardwareError: the network is unknown, or the probe cannot be read.
        """
        if probe is None:
            links = Links.of_device(device, network=network)
            return cls(device=device, local_ranks=local_ranks, links=links, cpu_threads=cpu_threads)
        transfers, adam = probe.get("transfers") or {}, probe.get("cpu_adam") or {}
        nvme = probe.get("nvme") or {}
        return cls(
            device=device,
            local_ranks=local_ranks,
            links=Links.from_probe(probe, device=device, network=network),
            probed_local_ranks=int(probe["local_ranks"]),
            alone_adam_elements_per_s=adam.get("alone_elements_per_s"),
            cpu_adam_elements_per_s=adam.get("elements_per_s"),
            cpu_threads=cpu_threads,
            probed_cpu_threads=int(adam["num_threads"]) if "num_threads" in adam else None,
            nvme_bytes_per_s=min(nvme.values(), default=None),
            host_bytes_per_s=min(transfers.values(), default=None),
        )

    def to_host_bytes_per_s(self, training: Training) -> float:
        """Between one rank's device and its host's memory, one direction."""
        alone, measured = self.device.host_bytes_per_s, self.host_bytes_per_s
        if self.played or measured is None:
            return alone
        return self._share_here(measured, training, most=alone)

    def drive_bytes_per_s(self, training: Training) -> float:
        """One rank's share of its node's NVMe drive."""
        if self.nvme_bytes_per_s is None:
            return NVME_BYTES_PER_S / self._sharing(training)
        return self._share_here(self.nvme_bytes_per_s, training)

    def probed_as_shared(self, training: Training) -> bool:
        """Whether as many ranks share a node as when a probe measured their shares of it."""
        return self.probed_local_ranks in (None, self._sharing(training))

    def _sharing(self, training: Training) -> int:
        return min(self.local_ranks, training.world_size)

    def _share_here(self, measured: float, training: Training, *, most: float = inf) -> float:
        """Return one rank's share of what a probe measured on nodes of another number of ranks.

        A node is taken to have the same in all, however many share it.

        Args:
            measured: a rank's share in the probe.
            training: the job.
            most: what one rank can use.
        """
        if self.probed_as_shared(training):
            return measured
        share = measured * (self.probed_local_ranks or 1) / self._sharing(training)
        return min(share, max(most, measured))

    def group(self, training: Training) -> Group:
        """Return the data-parallel ranks of one shard."""
        return self.group_of(training.world_size)

    def group_of(self, num_ranks: int) -> Group:
        """Return data-parallel ranks that follow each other, with tensor-parallel ones between."""
        per_node = max(self.local_ranks // self.tensor_parallel, 1)
        return Group.whole(num_ranks, local_ranks=per_node)

    def collective_s(self, kind: str, num_bytes: float, group: Group) -> float:
        """Return the seconds of a collective; 0 where nothing is really sent."""
        return 0.0 if self.silent else collective_s(kind, num_bytes, group, self.links)

    def adam_elements_per_s(self, training: Training) -> float:
        """Return what one rank's CPUAdam reaches beside those that share its host.

        The least of what its threads do, what one rank can use of the host's memory, and its share
        of that. A rank whose neighbours are played has the memory to itself, unless a probe knows
        its share. What crosses the bus takes its own time.
        """
        return min(self._shared_adam(training), self._threads_adam())

    def _shared_adam(self, training: Training) -> float:
        sharing = self._sharing(training)
        if self.cpu_adam_elements_per_s is not None:
            alone = self.alone_adam_elements_per_s
            if sharing == 1 and alone is not None:
                return alone
            most = alone or ALONE_ADAM_ELEMENTS_PER_S
            return self._share_here(self.cpu_adam_elements_per_s, training, most=most)
        if self.played:
            return ALONE_ADAM_ELEMENTS_PER_S
        return min(ALONE_ADAM_ELEMENTS_PER_S, NODE_ADAM_ELEMENTS_PER_S / sharing)

    def _threads_adam(self) -> float:
        """Return what the threads of a rank do; a probe of no more threads has measured it."""
        if self.cpu_threads is None or self.cpu_threads_are_probed:
            return inf
        return THREAD_ADAM_ELEMENTS_PER_S * pow(self.cpu_threads, THREAD_GAIN)

    @property
    def cpu_threads_are_probed(self) -> bool:
        """Whether a probe measured CPUAdam with no more threads than a rank has."""
        if self.cpu_adam_elements_per_s is None:
            return False
        given, probed = self.cpu_threads, self.probed_cpu_threads
        return given is None or probed is None or given >= probed

    def alone(self) -> Self:
        """Return the surroundings of one rank that plays its part alone."""
        return replace(self, silent=True, local_ranks=1)

    def emulated(self, *, num_threads: int) -> Self:
        """Return the surroundings of an emulated rank: no other rank copies to and from its host.

        What a probe says of CPUAdam stays: the emulated rank's whole offloaded step is slowed down
        to it. Collectives are timed by the same links, and cost the host what real ones do.

        Args:
            num_threads: CPU threads of the rank.
        """
        return replace(self, played=True, cpu_threads=num_threads)

    def real(self) -> Self:
        """Return the surroundings of the ranks that an emulated one plays."""
        return replace(self, silent=False, played=False)


def check_speeds(device: Device, precision: str) -> None:
    """Refuse a device that its owner described by its memory alone.

    Raises:
        HardwareError: nothing is known of a speed that a step depends on; all are named.
    """
    speeds = {
        f"{precision}_tflops": device.flops(precision),
        "memory_gb_per_s": device.memory_bytes_per_s,
        "host_gb_per_s": device.host_bytes_per_s,
    }
    missing = [name for name, speed in speeds.items() if not speed]
    if missing:
        raise HardwareError(
            f"--devices: {device.name}: its speed cannot be predicted without {', '.join(missing)}"
        )
