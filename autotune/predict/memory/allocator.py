"""A model of torch's caching allocator: what `memory_allocated` and `memory_reserved` would say.

After c10/cuda/CUDACachingAllocator.cpp (torch 2.6 to 2.13, default settings): sizes round up to
512 bytes, blocks come best-fit from a free list per stream and per size class, segments are 2 MiB
for requests up to 1 MiB, 20 MiB up to 10 MiB, and multiples of 2 MiB above; a large block is split
only if more than 1 MiB would remain. `allocated` counts whole blocks, so up to 1 MiB of each large
tensor is waste.
"""

from bisect import bisect_left, insort
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


class Block:
    """A piece of a segment, in use or free; neighbours of one segment are linked.

    `pool` is the free list it returns to: a segment serves one stream and one size class only.
    """

    __slots__ = ("address", "free", "item", "next", "pool", "previous", "requested", "size")

    def __init__(self, size: int, address: int, pool: int) -> None:
        self.size = size
        self.address = address
        self.pool = pool
        self.requested = 0
        self.item = 0
        self.free = True
        self.previous: Block | None = None
        self.next: Block | None = None


_FreeList = list[tuple[int, int, Block]]


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
        self._free_lists: list[_FreeList] = [[] for _ in range(6)]
        self._next_address = 0

    def allocate(self, num_bytes: int, item: int, stream: int = MAIN) -> Block:
        """Hand out a block for `num_bytes`, from the cache or from a new segment."""
        size = (num_bytes + 511) & ~511 or ROUND_BYTES
        small = size <= SMALL_BYTES
        free_list = self._free_lists[2 * stream + small]
        index = bisect_left(free_list, (size, -1))
        if index < len(free_list):
            block = free_list.pop(index)[2]
        else:
            block = self._new_segment(size, stream)
        rest = block.size - size
        if rest > SMALL_BYTES or (small and rest >= ROUND_BYTES):
            self._split(block, size, free_list)
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
        free_list = self._free_lists[block.pool]
        previous, following = block.previous, block.next
        if previous is not None and previous.free:
            del free_list[bisect_left(free_list, (previous.size, previous.address))]
            block = self._merge(previous, block)
        if following is not None and following.free:
            del free_list[bisect_left(free_list, (following.size, following.address))]
            block = self._merge(block, following)
        block.free = True
        insort(free_list, (block.size, block.address, block))

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
        for free_list in self._free_lists:
            whole = [e for e in free_list if e[2].previous is None and e[2].next is None]
            for entry in whole:
                free_list.remove(entry)
                self.reserved -= entry[0]

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

    def _new_segment(self, size: int, stream: int) -> Block:
        if size <= SMALL_BYTES:
            segment, index = SMALL_SEGMENT_BYTES, 2 * stream + 1
        elif size < MEDIUM_BYTES:
            segment, index = MEDIUM_SEGMENT_BYTES, 2 * stream
        else:
            segment, index = -(-size // SEGMENT_STEP_BYTES) * SEGMENT_STEP_BYTES, 2 * stream
        block = Block(segment, self._next_address, index)
        self._next_address += segment
        self.reserved += segment
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    @staticmethod
    def _split(block: Block, size: int, free_list: _FreeList) -> None:
        rest = Block(block.size - size, block.address + size, block.pool)
        rest.previous = block
        rest.next = block.next
        if rest.next is not None:
            rest.next.previous = rest
        block.next = rest
        block.size = size
        insort(free_list, (rest.size, rest.address, rest))

    @staticmethod
    def _merge(low: Block, high: Block) -> Block:
        low.size += high.size
        low.next = high.next
        if low.next is not None:
            low.next.previous = low
        return low
