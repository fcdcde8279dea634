"""A LLaMA-like shape for a model of which only the size is known."""

from autotune.errors import WorkloadError
from autotune.job.model_shape import ModelShape, shape_from_hf_config

ASSUMED = "autotune_assumed"
"""Marks the config of an assumed shape: its estimate is labelled and has a wider margin."""
_WIDTH_PER_LAYER = 128
"""Hidden size over layers, about the same from 1B to 70B."""
_VOCAB_SIZE = 32_000
_BLOCK = 12
"""A block's parameters over the square of its width: 4 for attention, 8 for the MLP."""
_STEP = 128


def assumed_shape(num_parameters: float) -> ModelShape:
    """Return a LLaMA-like shape with the given number of parameters, to within 0.1 %.

    Args:
        num_parameters: of the whole model, a count.

    Raises:
        WorkloadError: fewer than a million.

    Example:
        >>> shape = assumed_shape(6.74e9)
        >>> shape.hidden_size, shape.num_hidden_layers
        (4096, 32)
    """
    if not num_parameters >= 1e6:
        raise WorkloadError(
            f"parameters={num_parameters:g}: too few to assume a shape; give at least 1e6"
        )
    width = (num_parameters * _WIDTH_PER_LAYER / _BLOCK) ** (1 / 3)
    hidden = max(round(width / _STEP), 1) * _STEP
    vocab = min(_VOCAB_SIZE, int(num_parameters / 4 / hidden))
    inside = num_parameters - 2 * vocab * hidden
    layers = max(round(inside / (_BLOCK * hidden * hidden)), 1)
    mlp = round((inside / layers - 4 * hidden * hidden) / (3 * hidden))
    return shape_from_hf_config(
        {
            "model_type": "llama",
            "hidden_size": hidden,
            "intermediate_size": max(mlp, 1),
            "num_hidden_layers": layers,
            "num_attention_heads": hidden // _STEP,
            "vocab_size": vocab,
            "tie_word_embeddings": False,
            ASSUMED: True,
        },
        name=f"{num_parameters:.3g} parameters",
        where="--params",
    )
