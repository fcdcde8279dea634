"""A model of torch's caching allocator: what `memory_allocated` and `memory_reserved` would report.

After c10/cuda/CUDACachingAllocator.cpp (torch 2.6 to 2.13, default settings): sizes round up to
512 bytes, blocks come best-fit from a free list per stream and per size class, segments are 2 MiB
for requests up to 1 MiB, 20 MiB up to 10 MiB, and multiples of 2 MiB above; a large block is split
only if more than 1 MiB would remain. `allocated` counts whole blocks, so up to 1 MiB of each large
tensor is waste.

Under a limit, as `torch.cuda.set_per_process_memory_fraction` sets one (`alloc_block` compares
`reserved` plus the new segment with it), a segment that would exceed it first makes the allocator
free every segment that is wholly unused, of all streams and both size classes
(`release_cached_blocks`, one of `num_alloc_retries`); segments that are partly in use stay. If the
new one is still too much, the run is out of memory. (`release_available_cached_blocks`, tried
between, returns at once unless `max_split_size_mb` is set, and `garbage_collection_threshold` is
off by default.)
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

from autotune.predict.program.items import ITEM_NAMES, NUM_ITEMS, Item, Part

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


class Pool:
    """The free blocks of one stream and one size class."""

    __slots__ = ("blocks", "keys")

    def __init__(self) -> None:
        self.keys: list[int] = []
        """Size and address in one number, sorted: the first that is large enough fits best."""
        self.blocks: dict[int, Block] = {}
        """By key."""


class Block:
    """A piece of a segment, in use or free; neighbours of one segment are linked.

    `pool` is where it is returned: a segment serves one stream and one size class only.
    """

    __slots__ = ("address", "free", "item", "next", "pool", "previous", "requested", "size")

    address: int
    free: bool
    item: int
    pool: Pool
    requested: int
    size: int

    def __init__(self) -> None:
        self.previous: Block | None = None
        self.next: Block | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The highest point of one part of the run, in bytes."""

    part: Part
    detail: str
    """Where in that part, such as `layer 3 of 32`."""
    allocated_bytes: int
    items: dict[str, int]
    """What was live at that point, adding up to `allocated_bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanOut:
    """Where a run under a limit ran out of memory, in bytes."""

    part: Part
    detail: str
    asked_bytes: int
    allocated_bytes: int
    """At that point, in allocated blocks."""
    reserved_bytes: int
    """At that point, after all wholly unused segments were freed."""
    limit_bytes: int


class OutOfMemoryError(Exception):
    """The modelled allocator cannot serve a request under its limit; never leaves `replay`."""

    def __init__(self, ran_out: RanOut) -> None:
        super().__init__(f"{ran_out.asked_bytes} bytes requested in {ran_out.part}")
        self.ran_out = ran_out


class CachingAllocator:
    """Counts the bytes of one device; allocates nothing.

    Args:
        limit_bytes: the most that may be reserved; None for no limit.
        card_bytes: what the driver has for this allocator; None for no limit.
    """

    def __init__(self, limit_bytes: int | None = None, card_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.card_bytes = card_bytes
        self.num_retries = 0
        """How often the limit made it free its cache: `num_alloc_retries`."""
        self.allocated = 0
        self.reserved = 0
        self.peak_allocated = 0
        self.peak_reserved = 0
        self._detail = ""
        self._rising = True
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
        """Return a block for `num_bytes`, from the cache or from a new segment.

        This and `free` run a hundred thousand times a prediction; therefore they call no helpers.
        """
        size = (num_bytes + 511) & ~511 or ROUND_BYTES
        small = size <= SMALL_BYTES
        pool = self._pools[2 * stream + small]
        keys = pool.keys
        index = bisect_left(keys, size << _ADDRESS_BITS)
        if index < len(keys):
            block = pool.blocks.pop(keys.pop(index))
        else:
            block = self._new_segment(size, pool)
        rest_size = block.size - size
        if rest_size > SMALL_BYTES or (small and rest_size >= ROUND_BYTES):
            rest = self._spare.pop() if self._spare else Block()
            rest.size = rest_size
            rest.address = address = block.address + size
            rest.pool = pool
            rest.free = True
            rest.previous = block
            following = block.next
            rest.next = following
            if following is not None:
                following.previous = rest
            block.next = rest
            block.size = size
            key = rest_size << _ADDRESS_BITS | address
            insort(keys, key)
            pool.blocks[key] = rest
        else:
            size = block.size
        block.free = False
        block.requested = num_bytes
        block.item = item
        live = self._live
        live[item] += num_bytes
        live[_WASTE] += size - num_bytes
        self.allocated = allocated = self.allocated + size
        if allocated > self._part_peak:
            self._part_peak = allocated
            self._rising = True
        return block

    def free(self, block: Block) -> None:
        """Return a block to the cache, merged with free neighbours of its segment."""
        if self._rising:
            self._take_snapshot()
        size = block.size
        self.allocated -= size
        live = self._live
        live[block.item] -= block.requested
        live[_WASTE] -= size - block.requested
        keys, blocks = block.pool.keys, block.pool.blocks
        other = block.previous
        if other is not None and other.free:
            key = other.size << _ADDRESS_BITS | other.address
            del keys[bisect_left(keys, key)], blocks[key]
            other.size = size = other.size + size
            other.next = following = block.next
            if following is not None:
                following.previous = other
            self._spare.append(block)
            block = other
        other = block.next
        if other is not None and other.free:
            key = other.size << _ADDRESS_BITS | other.address
            del keys[bisect_left(keys, key)], blocks[key]
            block.size = size = size + other.size
            block.next = following = other.next
            if following is not None:
                following.previous = block
            self._spare.append(other)
        block.free = True
        key = size << _ADDRESS_BITS | block.address
        insort(keys, key)
        blocks[key] = block

    def enter(self, part: Part, detail: str = "") -> None:
        """Start another part of the step, with a separate peak."""
        if part is not self._part:
            self._close_part()
            self._part = part
            self._part_peak = self.allocated
            self._rising = True
        elif self._rising:
            self._take_snapshot()
        self._detail = detail

    def empty_cache(self) -> None:
        """Free segments that are wholly unused: `torch.cuda.empty_cache()`."""
        for pool in self._pools:
            for key, block in list(pool.blocks.items()):
                if block.previous is None and block.next is None:
                    pool.keys.remove(key)
                    del pool.blocks[key]
                    self.reserved -= block.size

    def driver_has(self, num_bytes: int) -> bool:
        """Whether the driver has that much left; the limit does not count."""
        return self.card_bytes is None or self.reserved + num_bytes <= self.card_bytes

    def reset_peaks(self) -> None:
        """Reset the peaks: `torch.cuda.reset_peak_memory_stats()`."""
        self._close_part()
        self.peak_allocated = self._part_peak = self.allocated
        self.peak_reserved = self.reserved
        self._rising = True

    def peaks(self) -> dict[Part, Peak]:
        """Return the highest point of each part so far."""
        self._close_part()
        return dict(self._peaks)

    def _take_snapshot(self) -> None:
        """Store what is live at a new peak; delayed until the peak ends, since many follow."""
        self._rising = False
        self._snapshot = self._live[:]
        self._part_detail = self._detail

    def _close_part(self) -> None:
        if self._rising:
            self._take_snapshot()
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
        if self.limit_bytes is not None and self.reserved + segment > self.limit_bytes:
            self._make_room(size, segment, self.limit_bytes)
        block = Block()
        block.size, block.address, block.pool = segment, self._next_address, pool
        self._next_address += segment
        self.reserved += segment
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _make_room(self, size: int, segment: int, limit: int) -> None:
        self.num_retries += 1
        self.empty_cache()
        if self.reserved + segment > limit:
            raise OutOfMemoryError(
                RanOut(
                    part=self._part,
                    detail=self._detail,
                    asked_bytes=size,
                    allocated_bytes=self.allocated,
                    reserved_bytes=self.reserved,
                    limit_bytes=limit,
                )
            )
