"""A model of torch's caching allocator: what `memory_allocated` and `memory_reserved` would say.

After c10/cuda/CUDACachingAllocator.cpp (torch 2.6 to 2.13, default settings): sizes round up to
512 bytes, blocks come best-fit from a free list per stream and per size class, segments are 2 MiB
for requests up to 1 MiB, 20 MiB up to 10 MiB, and multiples of 2 MiB above; a large block is split
only if more than 1 MiB would remain. `allocated` counts whole blocks, so up to 1 MiB of each large
tensor is waste.
"""

from bisect import bisect_left
from dataclasses import dataclass

from autotune.predict.memory.items import ITEM_NAMES, NUM_ITEMS, Item, Part

MIB = 2**20
ROUND_BYTES = 512
SMALL_BYTES = MIB
"""Requests up to this come from 2 MiB segments, and their blocks are always split."""
SMALL_SEGMENT_BYTES = 2 * MIB
MEDIUM_BYTES = 10 * MIB
MEDIUM_SEGMENT_BYTES = 20 * MIB
SEGMENT_STEP_BYTES = 2 * MIB

MAIN, REDUCE, GATHER = 0, 1, 2
"""CUDA streams: a block that one stream cached cannot serve another."""

_WASTE = int(Item.BLOCK_WASTE)
_ADDRESS_BITS = 48


class Block:
    """A piece of a segment, in use or free; neighbours of one segment are linked.

    `pool` is the free list it returns to: a segment serves one stream and one size class only.
    """

    __slots__ = ("address", "free", "item", "next", "pool", "previous", "requested", "size")

    def __init__(self, size: int, address: int, pool: "Pool") -> None:
        self.size = size
        self.address = address
        self.pool = pool
        self.requested = 0
        self.item = 0
        self.free = True
        self.previous: Block | None = None
        self.next: Block | None = None


class Pool:
    """The free blocks of one stream and one size class, smallest first."""

    __slots__ = ("blocks", "keys")

    def __init__(self) -> None:
        self.keys: list[int] = []
        """Size and address in one number, which sorts as the pair would."""
        self.blocks: list[Block] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The highest point of one part of the run, in bytes."""

    part: Part
    detail: str
    """Where in that part, such as `layer 3 of 32`."""
    allocated_bytes: int
    items: dict[str, int]
    """What was live at that point, adding up to `allocated_bytes`."""


class CachingAllocator:
    """Counts the bytes of one device; nothing is ever really allocated."""

    def __init__(self) -> None:
        self.allocated = 0
        self.reserved = 0
        self.peak_allocated = 0
        self.peak_reserved = 0
        self.detail = ""
        self._part = Part.INIT
        self._part_peak = 0
        self._part_detail = ""
        self._live = [0] * NUM_ITEMS
        self._snapshot = list(self._live)
        self._peaks: dict[Part, Peak] = {}
        # Index: 2 x stream, plus 1 for the small size class.
        self._pools = [Pool() for _ in range(6)]
        self._spare: list[Block] = []
        self._next_address = 0

    def allocate(self, num_bytes: int, item: int, stream: int = MAIN) -> Block:
        """Hand out a block for `num_bytes`, from the cache or from a new segment."""
        size = (num_bytes + 511) & ~511 or ROUND_BYTES
        small = size <= SMALL_BYTES
        pool = self._pools[2 * stream + small]
        index = bisect_left(pool.keys, size << _ADDRESS_BITS)
        if index < len(pool.keys):
            del pool.keys[index]
            block = pool.blocks.pop(index)
        else:
            block = self._new_segment(size, pool)
        rest = block.size - size
        if rest > SMALL_BYTES or (small and rest >= ROUND_BYTES):
            self._split(block, size, pool)
        block.free = False
        block.requested = num_bytes
        block.item = item
        taken = block.size
        live = self._live
        live[item] += num_bytes
        live[_WASTE] += taken - num_bytes
        self.allocated += taken
        if self.allocated > self._part_peak:
            self._part_peak = self.allocated
            self._part_detail = self.detail
            self._snapshot = live[:]
        return block

    def free(self, block: Block) -> None:
        """Return a block to the cache, merged with free neighbours of its segment."""
        size = block.size
        self.allocated -= size
        live = self._live
        live[block.item] -= block.requested
        live[_WASTE] -= size - block.requested
        pool = block.pool
        keys, blocks = pool.keys, pool.blocks
        other = block.previous
        if other is not None and other.free:
            index = bisect_left(keys, other.size << _ADDRESS_BITS | other.address)
            del keys[index], blocks[index]
            self._merge(other, block)
            block = other
        other = block.next
        if other is not None and other.free:
            index = bisect_left(keys, other.size << _ADDRESS_BITS | other.address)
            del keys[index], blocks[index]
            self._merge(block, other)
        block.free = True
        key = block.size << _ADDRESS_BITS | block.address
        index = bisect_left(keys, key)
        keys.insert(index, key)
        blocks.insert(index, block)

    def enter(self, part: Part, detail: str = "") -> None:
        """Start another part of the step: its peak is found apart from the others'."""
        self.detail = detail
        if part is not self._part:
            self._close_part()
            self._part = part
            self._part_peak = self.allocated
            self._part_detail = detail
            self._snapshot = self._live[:]

    def empty_cache(self) -> None:
        """Give back segments that are wholly free: `torch.cuda.empty_cache()`."""
        for pool in self._pools:
            kept = [b for b in pool.blocks if b.previous is not None or b.next is not None]
            self.reserved -= sum(b.size for b in pool.blocks) - sum(b.size for b in kept)
            pool.blocks = kept
            pool.keys = [b.size << _ADDRESS_BITS | b.address for b in kept]

    def reset_peaks(self) -> None:
        """Forget the peaks so far: `torch.cuda.reset_peak_memory_stats()`."""
        self._close_part()
        self.peak_allocated = self._part_peak = self.allocated
        self.peak_reserved = self.reserved
        self._snapshot = self._live[:]

    def peaks(self) -> dict[Part, Peak]:
        """Return the highest point of each part so far."""
        self._close_part()
        return dict(self._peaks)

    def _close_part(self) -> None:
        self.peak_allocated = max(self.peak_allocated, self._part_peak)
        known = self._peaks.get(self._part)
        if known is None or self._part_peak > known.allocated_bytes:
            self._peaks[self._part] = Peak(
                part=self._part,
                detail=self._part_detail,
                allocated_bytes=self._part_peak,
                items={n: b for n, b in zip(ITEM_NAMES, self._snapshot, strict=True) if b},
            )

    def _new_segment(self, size: int, pool: Pool) -> Block:
        if size <= SMALL_BYTES:
            segment = SMALL_SEGMENT_BYTES
        elif size < MEDIUM_BYTES:
            segment = MEDIUM_SEGMENT_BYTES
        else:
            segment = -(-size // SEGMENT_STEP_BYTES) * SEGMENT_STEP_BYTES
        block = Block(segment, self._next_address, pool)
        self._next_address += segment
        self.reserved += segment
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _split(self, block: Block, size: int, pool: Pool) -> None:
        number, address = block.size - size, block.address + size
        if self._spare:
            rest = self._spare.pop()
            rest.size, rest.address, rest.pool, rest.free = number, address, pool, True
        else:
            rest = Block(number, address, pool)
        following = block.next
        rest.previous, rest.next = block, following
        if following is not None:
            following.previous = rest
        block.next = rest
        block.size = size
        key = number << _ADDRESS_BITS | address
        index = bisect_left(pool.keys, key)
        pool.keys.insert(index, key)
        pool.blocks.insert(index, rest)

    def _merge(self, low: Block, high: Block) -> None:
        """Append a block to its lower neighbour; its object is used again."""
        low.size += high.size
        following = high.next
        low.next = following
        if following is not None:
            following.previous = low
        self._spare.append(high)
