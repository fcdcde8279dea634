"""Attention as CUDA's fused kernels hold it, where the CPU's kernels would hold scores.

A trace runs the CPU's shapes. Its fused kernel takes neither values of another width than the
queries nor models that transformers lets use flash attention only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional
from transformers import masking_utils, modeling_utils

FUSED = "autotune_fused"
"""What transformers calls this attention while a model is traced."""


class _Fused(torch.autograd.Function):
    """The tensors of FlashAttention: `mha_fwd` and `mha_bwd` in flash_api.cpp."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        """Make the output, by token and then by head, and a log-sum-exp a token and head."""
        query, key, value, sinks = inputs
        batch, heads, length, _ = query.shape
        output = query.new_empty(batch, length, heads, value.shape[-1])
        log_sum = query.new_empty(batch, heads, length, dtype=torch.float32)
        ctx.save_for_backward(query, key, value, sinks, output, log_sum)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Make the gradients; sums are taken in fp32, grouped keys and values expanded first."""
        query, key, value, sinks, _, log_sum = ctx.saved_tensors
        gradients = [
            tensor.new_empty(tensor.transpose(1, 2).shape).transpose(1, 2)
            for tensor in (query, key, value)
        ]
        scratch = [log_sum.new_empty(log_sum.shape), log_sum.new_empty(query.shape)]
        if key.shape[1] != query.shape[1]:
            scratch += [query.new_empty(query.shape) for _ in range(2)]
        while scratch:
            scratch.pop()
        return (*gradients, None if sinks is None else torch.empty_like(sinks))


@contextmanager
def fused_attention() -> Iterator[None]:
    """Let models use `FUSED`, and torch's own function whatever widths it is given."""
    real = functional.scaled_dot_product_attention

    def any_width(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        if query.shape[-1] == value.shape[-1]:
            return real(query, key, value, *args, **kwargs)
        return _Fused.apply(query, key, value, None).transpose(1, 2)  # type: ignore[no-untyped-call]

    modeling_utils.ALL_ATTENTION_FUNCTIONS.register(FUSED, _attend)
    masking_utils.ALL_MASK_ATTENTION_FUNCTIONS.register(FUSED, lambda *_, **__: None)
    functional.scaled_dot_product_attention = any_width
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = real


def _attend(
    _: Any, query: Any, key: Any, value: Any, *__: Any, s_aux: Any = None, **___: Any
) -> tuple[Any, None]:
    """Attend as transformers' own functions do; masks are left to the kernel."""
    return _Fused.apply(query, key, value, s_aux), None  # type: ignore[no-untyped-call]
