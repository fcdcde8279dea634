"""The result of a collective of one rank."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

VECTOR_BYTES = 16
"""What a thread of a kernel can read or write at once."""


@dataclass(frozen=True, slots=True)
class Copies:
    """One tensor, copied to consecutive places of another one."""

    source: torch.Tensor
    target: torch.Tensor
    """Its first bytes are the places."""
    places: int
    own: int | None = None
    """The place of the source, which needs no copy."""

    def __call__(self) -> None:
        """Copy with torch's kernels; one or two copies, whatever the shapes."""
        size = self.source.numel()
        places = self.target.view(-1)[: self.places * size].view(self.places, size)
        parts = (places,) if self.own is None else (places[: self.own], places[self.own + 1 :])
        for part in parts:
            if len(part):
                part.copy_(self.source.reshape(1, size).expand(len(part), size))

    @property
    def num_bytes(self) -> int:
        """Of the source."""
        return self.source.numel() * self.source.element_size()

    @property
    def in_vectors(self) -> bool:
        """Whether a kernel can copy 16 bytes at a time, whatever the shapes."""
        source, target = self.source, self.target
        return (
            source.dtype is target.dtype
            and source.is_contiguous()
            and target.is_contiguous()
            and target.numel() >= self.places * source.numel()
            and (source.data_ptr() | target.data_ptr() | self.num_bytes) % VECTOR_BYTES == 0
        )


Fill = Copies | Callable[[], None] | None
"""Writes the result; None where the result is already in place."""


def repeated(output: torch.Tensor, shard: torch.Tensor, *, rank: int, ranks: int) -> Copies:
    """Return the fill of a gather in which every rank holds what this one does."""
    # Gathers in place are common: the shard is already in the output.
    own_address = output.data_ptr() + rank * shard.numel() * shard.element_size()
    own = rank if own_address == shard.data_ptr() else None
    return Copies(source=shard, target=output, places=ranks, own=own)


def kept(shard: torch.Tensor, whole: torch.Tensor, *, rank: int) -> Copies:
    """Return the fill of a reduce-scatter whose other ranks add nothing."""
    size = shard.numel()
    return Copies(source=whole.reshape(-1).narrow(0, rank * size, size), target=shard, places=1)
