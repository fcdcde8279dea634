"""The head and the loss: often the peak, because logits are as wide as the vocabulary."""

from autotune.predict.program.items import Item, Part
from autotune.predict.program.layers import FP32, Dense, Layers

_LABEL_BYTES = 8


def head_and_loss(layers: Layers, head: Dense, hidden: int) -> int:
    """Record the head, Hugging Face's causal loss and their backward.

    In 16 bit: 10 bytes a logit in forward (logits, fp32 copy, log-softmax), 12 in backward
    (log-softmax and two fp32 gradients), while every activation is alive.

    Args:
        layers: the recorder.
        head: the linear module onto the vocabulary.
        hidden: its input, which ends here.

    Returns:
        The gradient of the head's input.
    """
    recorder = layers.recorder
    low_precision = layers.sizes.low_precision
    wide_bytes = FP32 * layers.sizes.tokens * head.num_outputs
    recorder.enter(Part.LOSS, "forward")
    logits = layers.linear(head, Item.LOGITS)
    wide = recorder.allocate(wide_bytes, Item.LOGITS) if low_precision else None
    padded, labels = (
        recorder.allocate(_LABEL_BYTES * layers.sizes.tokens, Item.LOGITS) for _ in range(2)
    )
    log_softmax = recorder.allocate(wide_bytes, Item.LOGITS)
    recorder.free(wide, padded, logits)
    kept = hidden if layers.keeps_input(head) else None
    if kept is None:
        recorder.free(hidden)
    recorder.enter(Part.LOSS, "backward")
    of_loss = recorder.allocate(wide_bytes, Item.LOGITS)
    recorder.free(labels)
    of_wide = recorder.allocate(wide_bytes, Item.LOGITS)
    recorder.free(of_loss, log_softmax)
    gradient = of_wide
    if low_precision:
        gradient = recorder.allocate(wide_bytes // 2, Item.LOGITS)
        recorder.free(of_wide)
    recorder.enter(Part.BACKWARD, "head")
    return layers.linear_backward(head, gradient, kept)
