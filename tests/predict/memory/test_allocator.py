import pytest

from autotune.predict.memory.allocator import (
    GATHER,
    MAIN,
    MIB,
    REDUCE,
    CachingAllocator,
)
from autotune.predict.program.items import Item, Part

WEIGHTS, LOGITS = int(Item.WEIGHTS), int(Item.LOGITS)


@pytest.mark.parametrize(
    ("requested", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1_024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        # No split: exactly 1 MiB or less would remain.
        (13 * MIB, 14 * MIB, 14 * MIB),
        (32 * MIB, 32 * MIB, 32 * MIB),
        (33 * MIB, 34 * MIB, 34 * MIB),
    ],
)
def test_sizes_are_rounded_as_torch_rounds_them(requested: int, block: int, segment: int) -> None:
    allocator = CachingAllocator()
    allocator.allocate(requested, WEIGHTS)
    assert (allocator.allocated, allocator.reserved) == (block, segment)


def test_a_large_block_is_split_only_above_one_mebibyte() -> None:
    allocator = CachingAllocator()
    first = allocator.allocate(64 * MIB, WEIGHTS)
    allocator.free(first)
    allocator.allocate(63 * MIB, WEIGHTS)
    assert allocator.allocated == 64 * MIB
    allocator = CachingAllocator()
    first = allocator.allocate(64 * MIB, WEIGHTS)
    allocator.free(first)
    allocator.allocate(63 * MIB - 512, WEIGHTS)
    assert allocator.allocated == 63 * MIB - 512


def test_neighbours_merge_so_that_a_larger_tensor_fits_again() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(100 * MIB, WEIGHTS))
    pieces = [allocator.allocate(25 * MIB, WEIGHTS) for _ in range(4)]
    for index in (1, 3, 0, 2):
        allocator.free(pieces[index])
    allocator.allocate(100 * MIB, WEIGHTS)
    assert allocator.reserved == 100 * MIB


def test_the_best_fitting_block_is_taken() -> None:
    allocator = CachingAllocator()
    large, small = allocator.allocate(100 * MIB, WEIGHTS), allocator.allocate(40 * MIB, WEIGHTS)
    allocator.free(large)
    allocator.free(small)
    assert allocator.allocate(40 * MIB, WEIGHTS) is small
    assert allocator.allocate(100 * MIB, WEIGHTS) is large


@pytest.mark.parametrize("other", [REDUCE, GATHER])
def test_a_stream_cannot_use_another_streams_cache(other: int) -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(40 * MIB, WEIGHTS, MAIN))
    allocator.allocate(40 * MIB, WEIGHTS, other)
    assert allocator.reserved == 80 * MIB


def test_small_and_large_tensors_do_not_share_segments() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(40 * MIB, WEIGHTS))
    allocator.allocate(MIB, WEIGHTS)
    assert allocator.reserved == 42 * MIB


def test_emptying_the_cache_gives_back_whole_segments_only() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(40 * MIB, WEIGHTS))
    kept = allocator.allocate(20 * MIB, WEIGHTS)
    whole = allocator.allocate(60 * MIB, WEIGHTS)
    allocator.free(whole)
    allocator.empty_cache()
    assert allocator.reserved == 40 * MIB
    allocator.free(kept)
    allocator.empty_cache()
    assert allocator.reserved == 0


def test_a_peak_keeps_what_was_live_and_adds_up() -> None:
    allocator = CachingAllocator()
    allocator.allocate(10 * MIB + 1, WEIGHTS)
    allocator.enter(Part.LOSS, "backward")
    logits = allocator.allocate(30 * MIB, LOGITS)
    allocator.free(logits)
    allocator.enter(Part.STEP)
    peaks = allocator.peaks()
    assert peaks[Part.LOSS].items["logits"] == 30 * MIB
    assert peaks[Part.LOSS].detail == "backward"
    assert "logits" not in peaks[Part.STEP].items
    for peak in peaks.values():
        assert sum(peak.items.values()) == peak.allocated_bytes


def test_reset_forgets_earlier_peaks() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(50 * MIB, WEIGHTS))
    allocator.empty_cache()
    allocator.reset_peaks()
    assert (allocator.peak_allocated, allocator.peak_reserved) == (0, 0)
