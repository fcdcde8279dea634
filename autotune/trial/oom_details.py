"""Details of an out-of-memory error: where, and how much was missing."""

from dataclasses import dataclass

from autotune.trial.failure_kind import FailureKind


@dataclass(frozen=True, slots=True, kw_only=True)
class OomDetails:
    """Why an allocation failed. Unknown bytes are None."""

    kind: FailureKind
    """`MEMORY` under the ceiling, `DEVICE_MEMORY` on the card, `HOST_MEMORY` on the host."""
    asked_bytes: int | None = None
    """Requested by the allocator, in whole segments."""
    short_bytes: int | None = None
    """The missing part of it."""
    needed_bytes: int | None = None
    """What the rank held plus what it requested, counted as the ceiling counts."""

    def describe(self) -> str:
        """Return a sentence for a reader."""
        where = {
            FailureKind.MEMORY: "under the ceiling",
            FailureKind.DEVICE_MEMORY: "on the device, below the ceiling",
            FailureKind.HOST_MEMORY: "of host memory",
        }[self.kind]
        asked = "" if self.asked_bytes is None else f" for an allocation of {self.asked_bytes:,}"
        if self.short_bytes is None:
            return f"out of memory {where}{asked}"
        return f"{self.short_bytes:,} bytes short {where}{asked}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What a caching allocator held, and was allowed, when a request failed; all in bytes."""

    asked_bytes: int
    """The segment that it requested from the driver."""
    reserved_bytes: int
    """Its segments, after it had freed the unused ones."""
    allowed_bytes: int
    """The most that it may reserve: the enforced fraction of the card."""
    free_bytes: int
    """The driver's free memory."""

    def oom_details(self, *, ceiling_bytes: int, outside_bytes: int) -> OomDetails:
        """Return whether the ceiling or the card was exceeded, and by how much.

        Args:
            ceiling_bytes: the most that the rank may use.
            outside_bytes: what the rank holds outside the allocator.
        """
        over_bytes = self.reserved_bytes + self.asked_bytes - self.allowed_bytes
        if over_bytes > 0:
            return OomDetails(
                kind=FailureKind.MEMORY,
                asked_bytes=self.asked_bytes,
                short_bytes=over_bytes,
                needed_bytes=ceiling_bytes + over_bytes,
            )
        return OomDetails(
            kind=FailureKind.DEVICE_MEMORY,
            asked_bytes=self.asked_bytes,
            # If the card has enough free memory it is fragmented; then at least one byte is
            # missing.
            short_bytes=max(self.asked_bytes - self.free_bytes, 1),
            needed_bytes=self.reserved_bytes + self.asked_bytes + outside_bytes,
        )
