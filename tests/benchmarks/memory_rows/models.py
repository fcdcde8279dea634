"""The models of the rows: Hugging Face configs, whole, of 0.35 to 3.2 billion parameters."""

from collections.abc import Mapping
from typing import Any

_LLAMA: dict[str, Any] = {"model_type": "llama", "tie_word_embeddings": False}
_GPT2: dict[str, Any] = {"model_type": "gpt2", "vocab_size": 50_257, "n_positions": 1_024}
_NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def _sizes(
    hidden: int, intermediate: int, layers: int, heads: int, key_value_heads: int | None = None
) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads or heads,
        "vocab_size": 32_000,
        "max_position_embeddings": 4_096,
    }


MODELS: Mapping[str, dict[str, Any]] = {
    "350m": _LLAMA | _sizes(1_024, 2_736, 24, 16),
    "1b": _LLAMA | _sizes(2_048, 5_504, 20, 16),
    "1b-tied": _LLAMA
    | _sizes(2_048, 8_192, 16, 32, 8)
    | {"vocab_size": 128_256, "tie_word_embeddings": True},
    "3b-tied": _LLAMA
    | _sizes(3_072, 8_192, 28, 24, 8)
    | {"vocab_size": 128_256, "tie_word_embeddings": True},
    "gpt2-medium": _GPT2 | _NO_DROPOUT | {"n_embd": 1_024, "n_layer": 24, "n_head": 16},
    "gpt2-large": _GPT2 | _NO_DROPOUT | {"n_embd": 1_280, "n_layer": 36, "n_head": 20},
    "gpt2-large-dropout": _GPT2 | {"n_embd": 1_280, "n_layer": 36, "n_head": 20},
    "opt-1.3b": {
        "model_type": "opt",
        "hidden_size": 2_048,
        "word_embed_proj_dim": 2_048,
        "ffn_dim": 8_192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "vocab_size": 50_272,
        "max_position_embeddings": 2_048,
        "dropout": 0.0,
        # With one, transformers writes into a row of the sharded, so empty, embedding.
        "pad_token_id": None,
        "tie_word_embeddings": True,
    },
    "mixtral-small": _sizes(1_024, 3_584, 8, 16, 8)
    | {"model_type": "mixtral", "tie_word_embeddings": False}
    | {"num_local_experts": 8, "num_experts_per_tok": 2},
}
"""Hugging Face configs, whole: 0.35 to 3.2 billion parameters."""


def tiny_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config of the same family with two layers of 64."""
    small = {
        "hidden_size": 64,
        "n_embd": 64,
        "word_embed_proj_dim": 64,
        "intermediate_size": 128,
        "ffn_dim": 128,
        "num_hidden_layers": 2,
        "n_layer": 2,
        "num_attention_heads": 4,
        "n_head": 4,
        "num_key_value_heads": 4,
        "vocab_size": 512,
    }
    return {key: small.get(key, value) for key, value in config.items()}
