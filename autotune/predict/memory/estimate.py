"""An estimate: what one rank needs, itemised at its peak, and whether it fits."""

from dataclasses import dataclass
from typing import Any

from autotune.predict.memory.allocator import Peak, RanOut
from autotune.predict.program.items import ITEM_NAMES, Item, Part

_ACTIVATIONS = "activations: a smaller micro batch, or activation checkpointing"
_ADVICE = {
    Part.LOSS: "the logits: a smaller micro batch or shorter sequences",
    Part.FORWARD: _ACTIVATIONS,
    Part.BACKWARD: _ACTIVATIONS,
    Part.REDUCTION: "gradients and buckets: a smaller reduce_bucket_size, or a higher stage",
    Part.STEP: "optimizer states: a higher stage, more ranks, or optimizer offload",
    Part.INIT: "whole weights while they are built: stage 3, or more ranks",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderCeiling:
    """The results of replays under a ceiling."""

    fits: bool
    """With the margin kept free, and steady steps that never free the cache."""
    runs: bool
    """With a smaller margin kept free; steady steps may free the cache repeatedly."""
    runs_bare: bool
    """The same if the prediction is right, without a margin."""
    ran_out: RanOut | None = None
    """Where it ran out; None if it runs, or if the allocated peak alone is too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEstimate:
    """Device memory of one rank, in bytes."""

    items: dict[str, int]
    """What is live at the peak; adds up to `peak_allocated_bytes`."""
    part: str
    """The part of a step in which the peak lies."""
    detail: str
    """Where in that part."""
    peak_allocated_bytes: int
    peak_reserved_bytes: int | None
    """With the allocator's cache; reported, but "fits" does not depend on it. None for the closed
    form."""
    outside_bytes: int
    """Outside the allocator: the driver's context, libraries, communicators."""
    margin: float
    """Kept free: the model's error where it was measured, more where it was not, and more for
    fragmentation with the closed form."""
    ceiling_bytes: int | None
    limit_bytes: int | None = None
    """The smallest limit of the allocator: the peak and fragmentation. None unless requested."""
    judged: UnderCeiling | None = None
    """By replay under the ceiling; None without one, or by the closed form."""
    init_allocated_bytes: int | None = None
    """After `deepspeed.initialize`."""
    init_reserved_bytes: int | None = None
    """The most that `deepspeed.initialize` reserves."""
    parts: tuple[Peak, ...] = ()
    """The highest point of every part of a step."""
    rank: int = 0
    """The rank of the estimate; by default the one that needs the most."""

    @property
    def needed_bytes(self) -> int:
        """The allocated peak with its margin, and what lies outside the allocator.

        Fragmentation comes on top where the allocator is pressed: see `limit_bytes`.
        """
        return round(self.peak_allocated_bytes * (1 + self.margin)) + self.outside_bytes

    @property
    def fits(self) -> bool | None:
        """Whether it fits under the ceiling; None without one."""
        if self.ceiling_bytes is None:
            return None
        return self.judged.fits if self.judged else self.needed_bytes <= self.ceiling_bytes

    @property
    def runs(self) -> bool | None:
        """Whether it runs under the ceiling, possibly slowly; None without one."""
        return self.judged.runs if self.judged else self.fits

    @property
    def runs_bare(self) -> bool | None:
        """The same if the prediction is right, without a margin; None without a ceiling."""
        if self.ceiling_bytes is None:
            return None
        bare = self.peak_allocated_bytes + self.outside_bytes <= self.ceiling_bytes
        return self.judged.runs_bare if self.judged else bare

    @property
    def largest_item(self) -> str:
        """The item with the most bytes at the peak."""
        return max(self.items, key=lambda name: self.items[name])

    @property
    def advice(self) -> str:
        """What to reduce first."""
        # At the loss every kept activation is alive too, and may outweigh the logits.
        if self.part == Part.LOSS and self._at_peak(Item.ACTIVATIONS) > self._at_peak(Item.LOGITS):
            return _ACTIVATIONS
        return _ADVICE[Part(self.part)]

    def _at_peak(self, item: Item) -> int:
        return self.items.get(ITEM_NAMES[item], 0)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "rank": self.rank,
            "items": self.items,
            "part": self.part,
            "detail": self.detail,
            "peak_allocated_bytes": self.peak_allocated_bytes,
            "peak_reserved_bytes": self.peak_reserved_bytes,
            "init_allocated_bytes": self.init_allocated_bytes,
            "outside_bytes": self.outside_bytes,
            "margin": self.margin,
            "limit_bytes": self.limit_bytes,
            "needed_bytes": self.needed_bytes,
            "ceiling_bytes": self.ceiling_bytes,
            "fits": self.fits,
            "parts": {
                peak.part.value: {
                    "peak_allocated_bytes": peak.allocated_bytes,
                    "detail": peak.detail,
                    "items": peak.items,
                }
                for peak in self.parts
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEstimate:
    """Host memory of one node's ranks together, in bytes."""

    items: dict[str, int]
    """Of one rank."""
    local_ranks: int
    """Ranks that share the node."""
    nvme_bytes: int
    """Of one rank's swap files."""
    margin: float
    ceiling_bytes: int | None

    @property
    def rank_bytes(self) -> int:
        """One rank's share."""
        return sum(self.items.values())

    @property
    def total_bytes(self) -> int:
        """All local ranks together."""
        return self.rank_bytes * self.local_ranks

    @property
    def fits(self) -> bool | None:
        """Whether the node has enough; None where its memory is unknown."""
        if self.ceiling_bytes is None:
            return None
        return self.total_bytes * (1 + self.margin) <= self.ceiling_bytes

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "items": self.items,
            "rank_bytes": self.rank_bytes,
            "local_ranks": self.local_ranks,
            "total_bytes": self.total_bytes,
            "nvme_bytes": self.nvme_bytes,
            "margin": self.margin,
            "ceiling_bytes": self.ceiling_bytes,
            "fits": self.fits,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """The memory of one training job."""

    device: DeviceEstimate
    host: HostEstimate
    method: str
    """replay, closed form, or traced."""
    unmeasured: tuple[str, ...]
    """Properties that no measured row has; they widen the margin."""

    @property
    def fits(self) -> bool | None:
        """Whether both device and host have enough; None where neither ceiling is known."""
        verdicts = [v for v in (self.device.fits, self.host.fits) if v is not None]
        return all(verdicts) if verdicts else None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values: `memory` as `plan --json` and `gate --format json` print it."""
        return {
            "device": self.device.to_json(),
            "host": self.host.to_json(),
            "method": self.method,
            "unmeasured": list(self.unmeasured),
        }
