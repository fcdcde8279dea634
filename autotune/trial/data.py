"""Random tokens that do not depend on how a step is divided into micro batches."""

from collections.abc import Iterator

import torch

from autotune.trial.spec import Place, TrialSpec


def micro_batches(spec: TrialSpec, place: Place, step: int) -> Iterator[torch.Tensor]:
    """Yield this rank's token ids of one optimizer step, a tensor per micro step.

    Each is `(micro_batch, seq_len)`. Two configs that run whole steps get the same sequences on the
    same rank, whatever their micro batch: their losses can be compared.
    """
    micro = int(spec.ds_config["train_micro_batch_size_per_gpu"])
    generator = torch.Generator().manual_seed(hash((spec.seed, step, place.rank)) & (2**63 - 1))
    vocab_size = int(spec.hf_config["vocab_size"])
    for _ in range(spec.timed_accumulation):
        yield torch.randint(vocab_size, (micro, spec.seq_len), generator=generator)
