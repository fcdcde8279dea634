"""The specification of a probe."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from autotune.serialization import Serializable
from autotune.study.outcome import Phase

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast")
_MIB = 1 << 20
SIZES_BYTES = tuple(n * _MIB // 16 for n in (1, 8, 32, 128, 512, 2048, 8192))
"""64 KiB to 512 MiB: from latency-bound to bandwidth-bound."""
CPU_SIZES_BYTES = SIZES_BYTES[:4]
"""CPU ranks move a hundredth as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSpec(Serializable):
    """One probe, the same for all its ranks."""

    program: ClassVar[str] = "probe"
    """The program of a preloaded parent's fork."""

    label: str
    device_kind: str
    """cuda or cpu."""
    num_threads: int
    """CPU threads of one rank: its share of the node's."""
    groups: tuple[tuple[int, ...], ...]
    """Groups of ranks whose collectives are timed; each starts with rank 0."""
    sizes_bytes: tuple[int, ...] = SIZES_BYTES
    """Of the whole: an all-gather's output, a reduce-scatter's input, an all-reduce's tensor."""
    num_repeats: int = 10
    enforced_bytes: int = 1 << 50
    """No ceiling: a probe needs less than two GiB."""
    adam_elements: int = 50_000_000
    """Parameters that every rank steps on its CPU threads; 0 leaves it out."""
    transfer_bytes: int = 256 * _MIB
    """Copied between pinned host memory and the device; 0 leaves it out."""
    nvme_path: str | None = None
    """A folder on the NVMe drive; None leaves it out."""
    nvme_bytes: int = 1024 * _MIB
    hang_timeouts_s: Mapping[Phase, float] = field(
        default_factory=lambda: dict.fromkeys(Phase, 300.0), hash=False
    )
