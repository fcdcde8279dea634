"""Attention: fused kernels keep a few vectors a token, eager ones a matrix per head."""

from dataclasses import dataclass

from autotune.predict.program.items import Item
from autotune.predict.program.layers import FP32, Layers, Saved

Inputs = tuple[int, ...]
"""Slots of query, key and value; one slot where a single matrix makes all three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSizes:
    """Widths of one attention layer."""

    width: int
    """Of the queries: heads x head size."""
    key_value_width: int
    """Of the keys; below `width` with grouped-query attention."""
    num_heads: int
    eager: bool
    """Scores are materialised: quadratic in the sequence length."""
    wide_softmax: bool = True
    """The eager softmax runs in fp32; GPT-2's stays in 16 bit."""
    dropout_rate: float = 0.0
    """Of the eager scores; fused kernels drop without keeping anything."""
    softmax_copies: bool = True
    """It gets an fp32 copy of the scores; torch's kernel reads fp16 directly, but no other type."""


def is_eager(attn_implementation: str, *, element_bytes: int, grouped: bool) -> bool:
    """Whether scores are materialised.

    torch's fused kernels for fp32 do not support grouped queries and fall back to the eager
    computation.
    """
    return attn_implementation == "eager" or (element_bytes == FP32 and grouped)


def attention(
    layers: Layers, sizes: AttentionSizes, inputs: Inputs, *, save: bool
) -> tuple[int, Saved]:
    """Record attention over queries, keys and values, which the caller frees unless `save`.

    A fused kernel keeps its three inputs, its output (2 bytes each an element in 16 bit) and a
    log-sum-exp of 4 bytes a token and head.
    """
    recorder = layers.recorder
    kept = Saved(dict(zip(("q", "k", "v"), inputs, strict=False)))
    if sizes.eager:
        return _eager(layers, sizes, kept, save=save)
    output = layers.activation(sizes.width)
    log_sum = layers.activation(sizes.num_heads, fp32=True)
    if save:
        kept.slots["log_sum"] = log_sum
    else:
        recorder.free(log_sum)
    return output, kept


def attention_backward(
    layers: Layers, sizes: AttentionSizes, gradient: int, saved: Saved
) -> tuple[int, int, int]:
    """Record attention's backward; returns the gradients of query, key and value.

    The fused kernel accumulates in fp32, and expands keys and values to all heads first.
    `saved` also holds attention's output, as `mixed`.
    """
    recorder = layers.recorder
    if sizes.eager:
        return _eager_backward(layers, sizes, gradient, saved)
    query = layers.activation_gradient(sizes.width)
    key = layers.activation_gradient(sizes.key_value_width)
    value = layers.activation_gradient(sizes.key_value_width)
    # `mha_bwd` in flash_api.cpp: row sums, the query's gradient in fp32, expanded keys and values.
    scratch = [
        layers.activation_gradient(sizes.num_heads, fp32=True),
        layers.activation_gradient(sizes.width, fp32=True),
    ]
    if sizes.key_value_width != sizes.width:
        scratch += [layers.activation_gradient(sizes.width) for _ in range(2)]
    recorder.free(*reversed(scratch), gradient, *(saved.take(name) for name in ("q", "k", "v")))
    recorder.free(saved.take("mixed"), saved.take("log_sum"))
    return query, key, value


def _scores(
    layers: Layers,
    sizes: AttentionSizes,
    item: Item,
    *,
    fp32: bool = False,
    element_bytes: int | None = None,
) -> int:
    shared = layers.sizes
    element_bytes = element_bytes or (FP32 if fp32 else shared.element_bytes)
    number = shared.micro_batch_size * sizes.num_heads * shared.seq_len**2
    return layers.recorder.allocate(element_bytes * number, item)


def _eager(
    layers: Layers, sizes: AttentionSizes, inputs: Saved, *, save: bool
) -> tuple[int, Saved]:
    """Record scores, scaling, mask, fp32 softmax, cast, and the product with the values.

    Kept: the fp32 softmax and its 16-bit cast, 6 bytes a score; 2 where it stays in 16 bit.
    """
    recorder = layers.recorder
    if sizes.key_value_width != sizes.width:
        for name in ("k", "v"):
            wide = layers.activation(sizes.width)
            recorder.free(inputs.take(name))
            inputs.slots[name] = wide
    product = _scores(layers, sizes, Item.ACTIVATIONS)
    scaled = _scores(layers, sizes, Item.ACTIVATIONS)
    recorder.free(product)
    masked = _scores(layers, sizes, Item.ACTIVATIONS)
    recorder.free(scaled)
    narrows = layers.sizes.low_precision and sizes.wide_softmax
    if narrows and sizes.softmax_copies:
        wide = _scores(layers, sizes, Item.ACTIVATIONS, fp32=True)
        recorder.free(masked)
        masked = wide
    soft = _scores(layers, sizes, Item.ACTIVATIONS, fp32=sizes.wide_softmax)
    recorder.free(masked)
    kept = Saved(inputs.slots | {"soft": soft})
    if narrows:
        kept.slots["cast"] = _scores(layers, sizes, Item.ACTIVATIONS)
    if sizes.dropout_rate > 0:
        dropped = _scores(layers, sizes, Item.ACTIVATIONS)
        mask = _scores(layers, sizes, Item.ACTIVATIONS, element_bytes=1)
        recorder.free(kept.take("cast"))
        kept.slots |= {"cast": dropped, "mask": mask}
    by_head = layers.activation(sizes.width)
    output = layers.activation(sizes.width)
    recorder.free(by_head)
    if save:
        return output, kept
    recorder.free(*kept.slots.values())
    return output, Saved()


def _eager_backward(
    layers: Layers, sizes: AttentionSizes, gradient: int, saved: Saved
) -> tuple[int, int, int]:
    recorder = layers.recorder
    of_scores = _scores(layers, sizes, Item.ACTIVATION_GRADIENTS)
    value = layers.activation_gradient(sizes.width)
    recorder.free(gradient, saved.take("mixed"), saved.take("cast"), saved.take("v"))
    if sizes.dropout_rate > 0:
        undropped = _scores(layers, sizes, Item.ACTIVATION_GRADIENTS)
        recorder.free(of_scores, saved.take("mask"))
        of_scores = undropped
    narrows = layers.sizes.low_precision and sizes.wide_softmax
    if narrows:
        wide = _scores(layers, sizes, Item.ACTIVATION_GRADIENTS, fp32=True)
        recorder.free(of_scores)
        of_scores = wide
    copies = narrows and sizes.softmax_copies
    # CUDA's kernel takes the product of gradient and output (SoftMax.cu).
    product = _scores(layers, sizes, Item.ACTIVATION_GRADIENTS, fp32=sizes.wide_softmax)
    of_soft = _scores(layers, sizes, Item.ACTIVATION_GRADIENTS, fp32=copies)
    recorder.free(product, of_scores, saved.take("soft"))
    if copies:
        narrow = _scores(layers, sizes, Item.ACTIVATION_GRADIENTS)
        recorder.free(of_soft)
        of_soft = narrow
    of_scaled = _scores(layers, sizes, Item.ACTIVATION_GRADIENTS)
    recorder.free(of_soft)
    query = layers.activation_gradient(sizes.width)
    key = layers.activation_gradient(sizes.width)
    recorder.free(of_scaled, saved.take("q"), saved.take("k"))
    if sizes.key_value_width != sizes.width:
        narrow_key = layers.activation_gradient(sizes.key_value_width)
        narrow_value = layers.activation_gradient(sizes.key_value_width)
        recorder.free(key, value)
        key, value = narrow_key, narrow_value
    return query, key, value
