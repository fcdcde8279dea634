"""Memory that was asked for and not there: where, and how much was missing."""

from dataclasses import dataclass

from autotune.trial.failure_kind import FailureKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why an allocation failed. Bytes that nobody told are None."""

    kind: FailureKind
    """`MEMORY` under the ceiling, `DEVICE_MEMORY` on the card itself, `HOST_MEMORY` on the host."""
    asked_bytes: int | None = None
    """What the allocation wanted, as the allocator asks for it: whole segments."""
    short_bytes: int | None = None
    """What was missing of it."""
    needed_bytes: int | None = None
    """What the rank held plus what it asked for, counted as the ceiling counts."""

    def describe(self) -> str:
        """Return a sentence for a reader."""
        where = {
            FailureKind.MEMORY: "under the ceiling",
            FailureKind.DEVICE_MEMORY: "on the device itself, below the ceiling",
            FailureKind.HOST_MEMORY: "of host memory",
        }[self.kind]
        asked = "" if self.asked_bytes is None else f" for an allocation of {self.asked_bytes:,}"
        if self.short_bytes is None:
            return f"out of memory {where}{asked}"
        return f"{self.short_bytes:,} bytes short {where}{asked}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What a caching allocator held, and had been allowed, when it gave up; all in bytes."""

    asked_bytes: int
    """The segment that it wanted from the driver."""
    reserved_bytes: int
    """Its segments, after it had given back those that were free."""
    allowed_bytes: int
    """The most that it may reserve: the enforced fraction of the card."""
    free_bytes: int
    """What the driver had left, for everybody."""

    def shortage(self, *, ceiling_bytes: int, outside_bytes: int) -> Shortage:
        """Tell whether the ceiling refused or the card itself, and how much was missing.

        Args:
            ceiling_bytes: the most that the rank may use.
            outside_bytes: what the rank holds outside the allocator.
        """
        over_bytes = self.reserved_bytes + self.asked_bytes - self.allowed_bytes
        if over_bytes > 0:
            return Shortage(
                kind=FailureKind.MEMORY,
                asked_bytes=self.asked_bytes,
                short_bytes=over_bytes,
                needed_bytes=ceiling_bytes + over_bytes,
            )
        return Shortage(
            kind=FailureKind.DEVICE_MEMORY,
            asked_bytes=self.asked_bytes,
            # A free card that still refuses is one in pieces; then at least one byte was missing.
            short_bytes=max(self.asked_bytes - self.free_bytes, 1),
            needed_bytes=self.reserved_bytes + self.asked_bytes + outside_bytes,
        )
