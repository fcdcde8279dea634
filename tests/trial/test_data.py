from collections.abc import Callable, Mapping
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from autotune.trial.data import micro_batches
from autotune.trial.spec import Place, TrialSpec


def _spec(
    make_spec: Callable[..., TrialSpec], micro: int, accumulation: int, **fields: Any
) -> TrialSpec:
    ds_config: Mapping[str, Any] = {"train_micro_batch_size_per_gpu": micro}
    return make_spec(ds_config=ds_config, timed_accumulation=accumulation, **fields)


def _sequences(spec: TrialSpec, *, rank: int = 0, step: int = 0) -> torch.Tensor:
    place = Place(
        rank=rank, world_size=2, local_rank=rank, local_world_size=2, master_addr="", master_port=0
    )
    return torch.cat(list(micro_batches(spec, place, step)))


@given(
    cut=st.sampled_from([(1, 24), (2, 12), (3, 8), (4, 6), (8, 3), (24, 1)]),
    seq_len=st.integers(1, 33),
    step=st.integers(0, 5),
)
def test_a_step_has_the_same_sequences_whatever_the_micro_batch(
    make_spec: Callable[..., TrialSpec], cut: tuple[int, int], seq_len: int, step: int
) -> None:
    whole = _sequences(_spec(make_spec, 24, 1, seq_len=seq_len), step=step)
    assert whole.shape == (24, seq_len)
    assert torch.equal(_sequences(_spec(make_spec, *cut, seq_len=seq_len), step=step), whole)


def test_ranks_steps_and_seeds_have_sequences_of_their_own(
    make_spec: Callable[..., TrialSpec],
) -> None:
    spec = _spec(make_spec, 4, 2)
    first = _sequences(spec)
    assert torch.equal(first, _sequences(spec))
    assert not torch.equal(first, _sequences(spec, rank=1))
    assert not torch.equal(first, _sequences(spec, step=1))
    assert not torch.equal(first, _sequences(_spec(make_spec, 4, 2, seed=4)))


def test_tokens_lie_in_the_vocabulary(make_spec: Callable[..., TrialSpec]) -> None:
    spec = _spec(make_spec, 8, 4)
    tokens = _sequences(spec)
    assert int(tokens.min()) >= 0
    assert int(tokens.max()) < spec.hf_config["vocab_size"]
