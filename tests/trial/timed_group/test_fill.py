"""What a collective of one rank leaves behind, and when a kernel may write it in vectors."""

import pytest
import torch

from autotune.trial.timed_group.fill import Copies, kept, repeated

RANKS = 4


def test_a_gather_in_place_needs_no_copy_of_its_own_part() -> None:
    output = torch.arange(32.0)
    fill = repeated(output, output[8:16], rank=1, ranks=RANKS)
    assert (fill.places, fill.own) == (RANKS, 1)
    fill()
    assert output.tolist() == [*range(8, 16)] * RANKS


def test_a_shard_at_another_rank_s_place_is_copied_to_all() -> None:
    output = torch.arange(32.0)
    assert repeated(output, output[8:16], rank=2, ranks=RANKS).own is None
    assert repeated(output, torch.ones(8), rank=1, ranks=RANKS).own is None


def test_a_reduce_scatter_keeps_one_part() -> None:
    shard, whole = torch.empty(8), torch.arange(32.0)
    fill = kept(shard, whole.view(8, 4), rank=2)
    fill()
    assert (fill.places, fill.num_bytes) == (1, 32)
    assert shard.tolist() == [*range(16, 24)]


def _shards(offset: int, num: int, dtype: torch.dtype = torch.bfloat16) -> Copies:
    """Return the gather of a shard `offset` elements behind where it is aligned."""
    memory = torch.zeros(64 + offset + num, dtype=dtype)
    start = -memory.data_ptr() % 16 // dtype.itemsize + offset
    return repeated(
        torch.zeros(RANKS * num, dtype=dtype), memory[start : start + num], rank=0, ranks=RANKS
    )


@pytest.mark.parametrize(
    ("fill", "in_vectors"),
    [
        (_shards(0, 16), True),
        (_shards(8, 16), True),
        (_shards(1, 16), False),  # where it lies
        (_shards(0, 15), False),  # how long it is: the second place is not aligned
        (Copies(torch.zeros(16), torch.zeros(64, dtype=torch.bfloat16), 1), False),
        (Copies(torch.zeros(16, 2)[:, 0], torch.zeros(16), 1), False),
        (Copies(torch.zeros(16), torch.zeros(16, 2)[:, 0], 1), False),
        (Copies(torch.zeros(16), torch.zeros(32), 4), False),
    ],
)
def test_vectors_need_aligned_memory(fill: Copies, in_vectors: bool) -> None:
    assert fill.in_vectors == in_vectors
