"""Networks between nodes, by what people call them: InfiniBand, RoCE and Ethernet."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

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


@cache
def networks() -> Mapping[str, Network]:
    """Return the networks of `networks.yaml` by name, read when first asked for."""
    import yaml

    text = Path(__file__).with_name("networks.yaml").read_text(encoding="utf-8")
    return {
        entry["name"]: Network(port_bytes_per_s=entry.pop("gigabit") * _GIGABIT, **entry)
        for entry in yaml.safe_load(text)
    }


def find_network(name: str, *, where: str = "--link") -> Network:
    """Find a network; `x4` at the end of a name says how many ports a node has.

    Args:
        name: `ib-ndr-400`, `ethernet-100gx4`, ...
        where: the option that gave it, for messages.

    Raises:
        HardwareError: no such network; the nearest are named and the known ones listed.

    Example:
        >>> find_network("ib-hdr-200x4").node_bytes_per_s(8) / 1e9
        85.0
    """
    plain, ports = name.strip().lower().replace("_", "-"), None
    if (match := re.fullmatch(r"(.*?[0-9]g?)x([1-9][0-9]?)", plain)) is not None:
        plain, ports = match[1], int(match[2])
    if plain in networks():
        network = networks()[plain]
        return network if ports is None else replace(network, name=name, ports=ports)
    near = difflib.get_close_matches(plain, networks())
    raise HardwareError(
        f"{where} {name}: unknown network; "
        + (f"did you mean {' or '.join(near)}? " if near else "")
        + f"known: {', '.join(networks())}, each with xN at its end for N ports a node"
    )
