"""Networks between nodes, by what people call them: InfiniBand, RoCE and Ethernet."""

import re
from dataclasses import dataclass, replace

from autotune.errors import HardwareError

_GIGABIT = 1e9 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What leaves a node."""

    name: str
    port_bytes_per_s: float
    """One port, one direction, by its line rate."""
    share: float
    """Of the line rate, in large collectives."""
    ports: int | None = None
    """Of a node; None is one for each of its devices, as GPU clusters are built."""

    def node_bytes_per_s(self, local_ranks: int) -> float:
        """Return what a node's ports carry together, one direction.

        Args:
            local_ranks: devices of the node.
        """
        ports = local_ranks if self.ports is None else self.ports
        return ports * self.port_bytes_per_s * self.share


def _network(name: str, gigabit: float, share: float, *, ports: int | None = None) -> Network:
    return Network(name=name, port_bytes_per_s=gigabit * _GIGABIT, share=share, ports=ports)


_RDMA_SHARE = 0.85
"""InfiniBand and RoCE: NCCL's benchmarks reach 80 to 92 % of the line rate."""
_TCP_SHARE = 0.6
"""Sockets: 50 to 70 %."""

NETWORKS: tuple[Network, ...] = (
    _network("ib-edr-100", 100, _RDMA_SHARE),
    _network("ib-hdr-200", 200, _RDMA_SHARE),
    _network("ib-ndr-400", 400, _RDMA_SHARE),
    _network("ib-xdr-800", 800, _RDMA_SHARE),
    _network("roce-100", 100, _RDMA_SHARE),
    _network("roce-200", 200, _RDMA_SHARE),
    _network("roce-400", 400, _RDMA_SHARE),
    _network("ethernet-10g", 10, _TCP_SHARE, ports=1),
    _network("ethernet-25g", 25, _TCP_SHARE, ports=1),
    _network("ethernet-100g", 100, _TCP_SHARE, ports=1),
    _network("ethernet-200g", 200, _TCP_SHARE, ports=1),
    _network("ethernet-400g", 400, _TCP_SHARE, ports=1),
)
"""InfiniBand and RoCE with a port per device, Ethernet with one per node."""


def find_network(name: str, *, where: str = "--link") -> Network:
    """Find a network; `x4` at the end of a name says how many ports a node has.

    Args:
        name: `ib-ndr-400`, `ethernet-100gx4`, ...
        where: the option that said it, for messages.

    Raises:
        HardwareError: no such network; the known ones are listed.

    Example:
        >>> find_network("ib-hdr-200x4").node_bytes_per_s(8) / 1e9
        85.0
    """
    plain, ports = name.strip().lower().replace("_", "-"), None
    if (match := re.fullmatch(r"(.*?[0-9]g?)x([1-9][0-9]?)", plain)) is not None:
        plain, ports = match[1], int(match[2])
    for network in NETWORKS:
        if network.name == plain:
            return network if ports is None else replace(network, name=name, ports=ports)
    raise HardwareError(
        f"{where} {name}: unknown network; known: {', '.join(n.name for n in NETWORKS)}, each with "
        "xN at its end for N ports a node"
    )
