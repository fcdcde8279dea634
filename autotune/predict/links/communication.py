"""What a collective costs: latency, and bytes over the bandwidth of the slowest link it crosses.

Pure arithmetic without torch, fast enough to run in a rank for every collective of a step. Links
come from a probe of the real pool, or else from a catalogue of vendors' data and NCCL's benchmarks;
`Links.source` is the origin.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from autotune.errors import HardwareError
from autotune.job.device import Device
from autotune.predict.links.networks import Network, find_network

KINDS = (
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
)
CATALOGUE = "catalogue"
_REDUCING = frozenset({"all_reduce", "broadcast", "reduce"})
"""Kinds for which NCCL has trees, whose latency grows with the logarithm of the nodes."""

START_S = 6e-6
"""On the device, before anything is sent: with the ramp below, 64 KiB between two H200s take 9 us,
as measured by a probe (8 to 11)."""
LOCAL_HOP_S = 1e-6
"""One step of a ring within a node."""
NETWORK_HOP_S = 6e-6
"""One step of a ring, or of a tree, from node to node."""
_UNKNOWN_BYTES_PER_S = 1e9
LOCAL_SHARE = {
    "all_gather": 0.635,
    "reduce_scatter": 0.61,
    "all_reduce": 0.767,
    "all_to_all": 0.7,
    "broadcast": 0.955,
}
"""Of NVLink's rate in large collectives, by a probe of two H200s; others as `all_gather`."""
_RAMP = 0.55
"""How slowly bandwidth is reached as sizes grow (1: at once), by the same probe; assumed to be the
same over PCIe and networks."""
_HIDING = 3
"""How far the steps' latency overlaps with transfers."""
PCIE_SHARE = 0.4
"""The same over PCIe, where every hop goes through the host."""
PCIE_BYTES_PER_S = 64e9
"""Links of at most this rate are assumed to be PCIe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The shape of a group of ranks."""

    ranks: int
    nodes: int = 1
    """Nodes that they are on, evenly."""

    @classmethod
    def of(cls, ranks: Sequence[int], *, local_ranks: int) -> Self:
        """Return the shape of a group of ranks that are numbered node by node.

        Example:
            >>> Group.of(range(0, 16, 4), local_ranks=8)
            Group(ranks=4, nodes=2)
        """
        return cls(ranks=len(ranks), nodes=len({rank // local_ranks for rank in ranks}))

    @classmethod
    def whole(cls, world_size: int, *, local_ranks: int) -> Self:
        """Return the shape of all ranks of a job."""
        return cls(ranks=world_size, nodes=-(-world_size // max(local_ranks, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Measured times of one kind in one group, by size."""

    num_bytes: tuple[int, ...]
    """Ascending."""
    seconds: tuple[float, ...]

    def seconds_of(self, num_bytes: float) -> float:
        """Interpolate between the points; constant below the smallest and above the largest."""
        sizes, times = self.num_bytes, self.seconds
        if num_bytes <= sizes[0]:
            return times[0]
        if num_bytes >= sizes[-1]:
            return times[-1]
        right = bisect_left(sizes, num_bytes)
        left = right - 1
        share = (num_bytes - sizes[left]) / (sizes[right] - sizes[left])
        return times[left] + share * (times[right] - times[left])


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The links between ranks."""

    local_bytes_per_s: float
    """To a neighbour in the same node, one direction, as the vendor specifies."""
    network: Network
    """Between nodes."""
    source: str = CATALOGUE
    """catalogue or probe."""
    curves: Mapping[tuple[str, Group], Curve] = field(default_factory=dict, repr=False, hash=False)
    """Of a probe."""

    @classmethod
    def of_device(cls, device: Device, *, network: str | None = None) -> Self:
        """Return the catalogue's links of a device.

        Args:
            device: every rank's device.
            network: such as `ib-ndr-400`; None uses the usual network of such devices.

        Raises:
            HardwareError: no such network; the known ones are listed.
        """
        local = device.link_bytes_per_s or device.host_bytes_per_s
        return cls(
            local_bytes_per_s=local or _UNKNOWN_BYTES_PER_S, network=network_of(device, network)
        )

    def source_for(self, job: Group) -> str:
        """Return the origin of the times of a job's collectives, for a reader.

        Args:
            job: all its ranks.
        """
        crossings = {group.nodes > 1 for _, group in self.curves}
        if not crossings or (job.nodes > 1) in crossings:
            return self.source
        if job.nodes > 1:
            return f"{self.source} (within a node; the {CATALOGUE} between nodes)"
        return CATALOGUE

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {
            "source": self.source,
            "local_bytes_per_s": self.local_bytes_per_s,
            "network": asdict(self.network),
            "curves": [
                {
                    "kind": kind,
                    "group": asdict(group),
                    "num_bytes": list(curve.num_bytes),
                    "seconds": list(curve.seconds),
                }
                for (kind, group), curve in self.curves.items()
            ],
        }

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild links from `to_json`."""
        return cls(
            source=mapping["source"],
            local_bytes_per_s=mapping["local_bytes_per_s"],
            network=Network(**mapping["network"]),
            curves={
                (curve["kind"], Group(**curve["group"])): Curve(
                    num_bytes=tuple(curve["num_bytes"]), seconds=tuple(curve["seconds"])
                )
                for curve in mapping["curves"]
            },
        )

    @classmethod
    def from_probe(
        cls,
        probe: Mapping[str, Any],
        *,
        device: Device,
        network: str | None = None,
        where: str = "probe",
    ) -> Self:
        """Read the collectives that a probe measured; missing values are scaled by the catalogue.

        Args:
            probe: `local_ranks` and `collectives`, rows of `kind`, `num_bytes`, `ranks` (a list)
                and `s`.
            device: the probe's device.
            network: between nodes, where the probe did not cross them; None as in `of_device`.
            where: the file, for messages.

        Raises:
            HardwareError: the rows cannot be read.
        """
        points: dict[tuple[str, Group], dict[int, float]] = {}
        try:
            local_ranks = int(probe["local_ranks"])
            for row in probe["collectives"]:
                group = Group.of(row["ranks"], local_ranks=local_ranks)
                key = (str(row["kind"]), group)
                points.setdefault(key, {})[int(row["num_bytes"])] = float(row["s"])
        except (KeyError, TypeError, ValueError) as error:
            raise HardwareError(
                f"{where}: not a probe file: needs local_ranks and collectives, rows of kind, "
                f"num_bytes, ranks and s ({error!r}); write one with autotune probe"
            ) from error
        usual = cls.of_device(device, network=network)
        return cls(
            local_bytes_per_s=usual.local_bytes_per_s,
            network=usual.network,
            source="probe" if points else usual.source,  # one rank measures none
            curves={
                key: Curve(
                    num_bytes=tuple(sorted(rows)),
                    seconds=tuple(rows[size] for size in sorted(rows)),
                )
                for key, rows in points.items()
            },
        )


def network_of(device: Device, name: str | None = None) -> Network:
    """Return a network by name, or the usual one of machines with a device.

    Raises:
        HardwareError: no such network; the known ones are listed.
    """
    if name is not None:
        return find_network(name)
    return find_network(device.network, where=f"{device.name}: network")


def collective_s(kind: str, num_bytes: float, group: Group, links: Links) -> float:
    """Return the seconds of one collective without contention.

    Args:
        kind: one of `KINDS`.
        num_bytes: of the whole: an all-gather's output, a reduce-scatter's input, an all-reduce's
            tensor.
        group: the shape of the group.
        links: the links between its ranks.

    Raises:
        ValueError: no such kind.
    """
    if group.ranks == 1:
        return 0.0
    if not links.curves:
        return _catalogue_s(kind, num_bytes, group, links)
    if (kind, group) in links.curves:
        return _measured_s(kind, num_bytes, group, links)
    measured = _nearest(kind, group, links)
    usual = _catalogue_s(kind, num_bytes, group, links)
    if measured is None:
        return usual
    other_kind, other = measured
    scale = usual / _catalogue_s(other_kind, num_bytes, other, links)
    return scale * _measured_s(other_kind, num_bytes, other, links)


def _measured_s(kind: str, num_bytes: float, group: Group, links: Links) -> float:
    """Read a measured curve; above its largest size it continues like the catalogue's.

    The largest may be latency only, which gives no bandwidth.
    """
    curve = links.curves[kind, group]
    largest = curve.num_bytes[-1]
    seconds = curve.seconds_of(num_bytes)
    if num_bytes > largest:
        beyond, at_largest = (_catalogue_s(kind, n, group, links) for n in (num_bytes, largest))
        seconds *= beyond / at_largest
    return seconds


def _nearest(kind: str, group: Group, links: Links) -> tuple[str, Group] | None:
    """Return the measured kind and group that are nearest to the requested one."""
    crosses = group.nodes > 1
    alike = [key for key in links.curves if (key[1].nodes > 1) == crosses]
    if not alike:
        return None
    return min(
        alike,
        key=lambda key: (key[0] != kind, abs(math.log(key[1].ranks / group.ranks)), key[0]),
    )


def _catalogue_s(kind: str, num_bytes: float, group: Group, links: Links) -> float:
    """Small ones are latency, large ones transfer; in between full speed is reached slowly."""
    ranks = group.ranks
    if kind not in KINDS:
        raise ValueError(f"{kind} is not a collective; known: {', '.join(KINDS)}")
    sent = num_bytes * (ranks - 1) / ranks
    if kind == "all_reduce":
        sent *= 2
    elif kind in ("broadcast", "reduce"):
        sent = num_bytes
    rate = _local_rate(kind, links)
    if group.nodes > 1:
        local_ranks = max(ranks // group.nodes, 1)
        crossing = links.network.node_bytes_per_s(local_ranks)
        if kind == "all_to_all":
            # Data for another node uses the ports of every local rank.
            sent *= local_ranks
            rate *= local_ranks
        rate = min(rate, crossing)
    sent_s = (START_S**_RAMP + (sent / rate) ** _RAMP) ** (1 / _RAMP)
    return float((_latency_s(kind, group) ** _HIDING + sent_s**_HIDING) ** (1 / _HIDING))


def _local_rate(kind: str, links: Links) -> float:
    link = links.local_bytes_per_s
    share = LOCAL_SHARE.get(kind, LOCAL_SHARE["all_gather"])
    return link * (share if link > PCIE_BYTES_PER_S else PCIE_SHARE)


def _latency_s(kind: str, group: Group) -> float:
    """Rings take a step per rank, trees a level per doubling."""
    local_ranks = max(group.ranks // group.nodes, 1)
    if kind in _REDUCING:
        return (
            START_S
            + LOCAL_HOP_S * 2 * (local_ranks - 1)
            + NETWORK_HOP_S * 2 * math.ceil(math.log2(group.nodes))
        )
    return (
        START_S + LOCAL_HOP_S * group.nodes * (local_ranks - 1) + NETWORK_HOP_S * (group.nodes - 1)
    )
