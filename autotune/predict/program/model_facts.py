"""What only transformers' own code can say of a model: its attention, its exact size.

Importing that code takes seconds; the answers are kept in the user's cache folder.
"""

from functools import lru_cache
from typing import Any

from autotune.errors import AutotuneError, WorkloadError
from autotune.job.model_shape import ModelShape
from autotune.predict.program.families import HAND_WRITTEN
from autotune.predict.program.trace.trace_files import model_key
from autotune.predict.program.user_cache import read_cached, write_cached

EAGER = "eager"
_USUAL = ("sdpa", EAGER, "flash_attention_2", "flex_attention")
"""Attention of the families with a hand-written program, the default first."""
_WITHOUT_FLEX = frozenset({"gpt2"})
_COUNTED_BY_HAND = frozenset({"llama", "mistral", "qwen2", "mixtral", "gpt2"})


def attention_of(shape: ModelShape, asked: str | None = None) -> str:
    """Return the attention that the installed transformers gives a model.

    A `flash_attention_2` that the model's class supports is taken although its kernels may not be
    installed here: what is planned runs elsewhere.

    Args:
        shape: the model.
        asked: Hugging Face's `attn_implementation`; None is transformers' own choice.

    Raises:
        WorkloadError: the model does not support what is asked for, or transformers cannot build
            it.
    """
    supported = supported_attention(shape)
    if asked is None:
        return supported[0]
    if asked not in supported:
        raise WorkloadError(
            f"--attn-implementation {asked}: transformers has no such attention for model_type "
            f"{shape.model_type}; it supports {', '.join(supported)}"
        )
    return asked


def supported_attention(shape: ModelShape) -> tuple[str, ...]:
    """Return the attention implementations that a model supports, transformers' own choice first.

    Raises:
        WorkloadError: transformers cannot build the model.
    """
    if shape.model_type in HAND_WRITTEN:
        left_out = {"flex_attention"} if shape.model_type in _WITHOUT_FLEX else set()
        return tuple(name for name in _USUAL if name not in left_out)
    return tuple(_facts(_Model(shape))["attention"])


def count_parameters(shape: ModelShape) -> int:
    """Return the parameters of the whole model, a count; tied weights count once.

    Raises:
        WorkloadError: transformers cannot build the model.
    """
    if shape.model_type in _COUNTED_BY_HAND:
        return shape.num_parameters
    return int(_facts(_Model(shape))["num_parameters"])


class _Model:
    """A shape as a key, which its config, a mapping, keeps it from being."""

    def __init__(self, shape: ModelShape) -> None:
        self.shape = shape
        self.key = model_key(shape)
        self._identity = repr(sorted(self.key.items(), key=str))

    def __hash__(self) -> int:
        return hash(self._identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Model) and self._identity == other._identity


@lru_cache(maxsize=64)
def _facts(model: _Model) -> dict[str, Any]:
    kept = read_cached("models", model.key)
    if isinstance(kept, dict) and kept.keys() >= {"attention", "num_parameters"}:
        return kept
    from autotune.predict.program.trace.facts import find_facts

    try:
        found = find_facts(model.shape)
    except AutotuneError:
        raise
    except Exception as error:  # whatever a model's own code may raise
        message = str(error).splitlines()[0] if str(error) else "no message"
        raise WorkloadError(
            f"--model {model.shape.name}: transformers cannot build model_type "
            f"{model.shape.model_type} ({type(error).__name__}: {message})"
        ) from error
    write_cached("models", model.key, found)
    return found
