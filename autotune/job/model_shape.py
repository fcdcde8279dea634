"""The model of a workload: a preset, or what a Hugging Face `config.json` says."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from autotune.errors import WorkloadError

LEARNED_POSITIONS = frozenset({"gpt2", "opt"})
"""Model types whose position table ends at `max_position_embeddings`."""

# Names that Hugging Face configs use for the same dimension, the usual one first.
_NAMES = {
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "num_heads"),
    "vocab_size": ("vocab_size",),
}
_OPTIONAL = {
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim", "d_ff"),
    "num_key_value_heads": ("num_key_value_heads",),
    "max_position_embeddings": ("max_position_embeddings", "n_positions"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The dimensions that decide a causal language model's memory and speed."""

    name: str
    """What the user called it: a preset, or the folder the config came from."""
    model_type: str
    """Hugging Face's `model_type`: llama, gpt2, opt, mistral, ..."""
    hidden_size: int
    intermediate_size: int
    """Width of the MLP."""
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    """Below `num_attention_heads` with grouped-query attention."""
    vocab_size: int
    max_position_embeddings: int
    """Tokens; 0 where the config does not say."""
    tie_word_embeddings: bool
    hf_config: Mapping[str, Any] = field(repr=False)
    """The Hugging Face config that trials build the model from."""

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole model, a count; exact for the llama and gpt2 families.

        Other families are counted as if they were llama, which serves time-outs, not memory.
        """
        hidden, layers, vocab = self.hidden_size, self.num_hidden_layers, self.vocab_size
        head = 0 if self.tie_word_embeddings else vocab * hidden
        if self.model_type == "gpt2":
            mlp = 2 * hidden * self.intermediate_size + self.intermediate_size + hidden
            attention = 4 * hidden * hidden + 4 * hidden
            block = attention + mlp + 4 * hidden
            positions = self.max_position_embeddings * hidden
            return vocab * hidden + positions + layers * block + 2 * hidden + head
        key_value = hidden // self.num_attention_heads * self.num_key_value_heads
        attention = 2 * hidden * hidden + 2 * hidden * key_value
        block = attention + 3 * hidden * self.intermediate_size + 2 * hidden
        return vocab * hidden + layers * block + hidden + head

    @property
    def attention_width(self) -> int:
        """Width of all queries together; `hidden_size` unless the config sets `head_dim`."""
        return self._head_size * self.num_attention_heads

    @property
    def key_value_width(self) -> int:
        """Width of all keys together, and of all values."""
        return self._head_size * self.num_key_value_heads

    @property
    def _head_size(self) -> int:
        return self.hf_config.get("head_dim") or self.hidden_size // self.num_attention_heads

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return asdict(self) | {"hf_config": dict(self.hf_config)}

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild a shape from `to_json`."""
        return cls(**mapping)


def load_model_shape(name: str) -> ModelShape:
    """Find a model by preset name, or by a path to a Hugging Face config.

    Args:
        name: a preset (`7b`), a `config.json`, or a folder that holds one.

    Raises:
        WorkloadError: no such preset or file, not JSON, or dimensions missing.
    """
    if (preset := PRESETS.get(name.lower())) is not None:
        return preset
    path = Path(name)
    if path.is_dir():
        path /= "config.json"
        if not path.is_file():
            raise WorkloadError(
                f"--model {name}: a folder without a config.json; give the folder of a Hugging "
                f"Face model, or a preset: {', '.join(PRESETS)}"
            )
    if not path.is_file():
        raise WorkloadError(
            f"--model {name}: neither a preset nor a Hugging Face config.json or model folder; "
            f"presets: {', '.join(PRESETS)}"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise WorkloadError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(config, dict):
        raise WorkloadError(f"{path}: holds a {type(config).__name__}, not a model config")
    return shape_from_hf_config(config, name=str(path.parent), where=str(path))


def shape_from_hf_config(config: Mapping[str, Any], *, name: str, where: str) -> ModelShape:
    """Read the dimensions out of a Hugging Face config.

    Args:
        config: the parsed `config.json`; multimodal ones may keep the language model in
            `text_config`, which is what is read.
        name: how to call the model.
        where: the file, for messages.

    Raises:
        WorkloadError: a dimension is missing or not a positive whole number; all are named.
    """
    inner = config.get("text_config")
    config = inner if isinstance(inner, Mapping) else config
    faults: list[str] = []
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        faults.append(f"{where}: model_type is missing; Hugging Face needs it to build the model")
    found = {}
    for dimension, names in (_NAMES | _OPTIONAL).items():
        value = _first(config, names)
        if value is None and dimension in _OPTIONAL:
            continue
        if value is None:
            faults.append(f"{where}: {dimension} is missing (looked for {', '.join(names)})")
        elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
            faults.append(f"{where}: {dimension}={value!r} is not a positive whole number")
        else:
            found[dimension] = value
    if not faults and found["hidden_size"] % found["num_attention_heads"]:
        faults.append(
            f"{where}: hidden_size={found['hidden_size']} is not divisible by "
            f"num_attention_heads={found['num_attention_heads']}"
        )
    if faults:
        raise WorkloadError(*faults)
    tied_by_default = model_type in LEARNED_POSITIONS
    assumed = {
        "intermediate_size": 4 * found["hidden_size"],
        "num_key_value_heads": found["num_attention_heads"],
        "max_position_embeddings": 0,
    }
    return ModelShape(
        name=name,
        model_type=str(model_type),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", tied_by_default)),
        hf_config=dict(config),
        **(assumed | found),
    )


def _first(config: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _llama(name: str, dimensions: tuple[int, int, int, int], **other: Any) -> ModelShape:
    hidden, intermediate, layers, heads = dimensions
    config = {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "vocab_size": 32_000,
        "max_position_embeddings": 4_096,
        "tie_word_embeddings": False,
    } | other
    return shape_from_hf_config(config, name=name, where=f"preset {name}")


def _gpt2(name: str, hidden: int, layers: int, heads: int) -> ModelShape:
    config = {
        "model_type": "gpt2",
        "n_embd": hidden,
        "n_layer": layers,
        "n_head": heads,
        "vocab_size": 50_257,
        "n_positions": 1_024,
        "tie_word_embeddings": True,
        # A tuner measures the training step; dropout changes losses from run to run.
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }
    return shape_from_hf_config(config, name=name, where=f"preset {name}")


PRESETS: Mapping[str, ModelShape] = {
    shape.name: shape
    for shape in (
        _llama("tiny", (128, 352, 4, 4), vocab_size=1_024, max_position_embeddings=512),
        _llama("125m", (768, 2_048, 12, 12)),
        _llama("350m", (1_024, 2_736, 24, 16)),
        _llama("1.3b", (2_048, 5_504, 24, 16)),
        _llama("7b", (4_096, 11_008, 32, 32)),
        _llama("13b", (5_120, 13_824, 40, 40)),
        _llama(
            "34b", (8_192, 22_016, 48, 64), num_key_value_heads=8, max_position_embeddings=16_384
        ),
        _llama("70b", (8_192, 28_672, 80, 64), num_key_value_heads=8),
        _gpt2("gpt2", 768, 12, 12),
        _gpt2("gpt2-medium", 1_024, 24, 16),
        _gpt2("gpt2-large", 1_280, 36, 20),
        _gpt2("gpt2-xl", 1_600, 48, 25),
    )
}
"""Models by the names that people use for their sizes."""
