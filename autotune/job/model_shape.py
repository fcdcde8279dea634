"""The shape of a model: a preset, or read from a Hugging Face `config.json`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from autotune.errors import NotJudgedError, WorkloadError
from autotune.job.hub_cache import cached_config, is_hub_name
from autotune.job.model_kind import causal_types, other_kind, text_section, towers

LEARNED_POSITIONS = frozenset({"gpt2", "opt"})
"""Model types whose position table ends at `max_position_embeddings`."""

# Names that Hugging Face configs use for the same dimension, the usual one first.
_NAMES = {
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": (
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
        "attention_heads",
    ),
    "vocab_size": ("vocab_size",),
}
_OPTIONAL = {
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim", "d_ff"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "max_seq_len"),
}
_HEAD_SIZES = ("head_dim", "qk_nope_head_dim", "kv_channels", "attention_head_size", "d_kv")
"""Keys with the size of a head; `hidden_size` is then not required to be a multiple of it."""
_NUM_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
MAX_LAYERS = 400
MAX_PARAMETERS = 1e14
"""Limits of a model whose memory is judged: above all published ones, predicted in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The dimensions that decide a causal language model's memory and speed."""

    name: str
    """The preset, or the folder or Hub name of the config."""
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
    """Tokens; 0 if the config does not state it."""
    tie_word_embeddings: bool
    hf_config: Mapping[str, Any] = field(repr=False)
    """The Hugging Face config that trials build the model from."""
    unmodelled: tuple[str, ...] = ()
    """Parts that the other fields do not cover, such as `vision tower of llava`."""

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole model, a count; exact for the llama, mixtral and gpt2 families.

        Other families are counted like one of these, which is enough for time-outs, not for memory;
        `autotune.predict.program.model_facts.count_parameters` counts every family exactly.
        """
        hidden, layers, vocab = self.hidden_size, self.num_hidden_layers, self.vocab_size
        head = 0 if self.tie_word_embeddings else vocab * hidden
        if self.model_type == "gpt2":
            mlp = 2 * hidden * self.intermediate_size + self.intermediate_size + hidden
            attention = 4 * hidden * hidden + 4 * hidden
            block = attention + mlp + 4 * hidden
            positions = self.max_position_embeddings * hidden
            return vocab * hidden + positions + layers * block + 2 * hidden + head
        width, key_value = self.attention_width, self.key_value_width
        block = 2 * hidden * (width + key_value) + 2 * hidden
        if self.model_type == "qwen2":
            block += width + 2 * key_value
        return vocab * hidden + layers * (block + self._mlp_parameters) + hidden + head

    @property
    def _mlp_parameters(self) -> int:
        """Of one layer: a gated MLP, or a router and its experts."""
        config, mlp = self.hf_config, 3 * self.hidden_size * self.intermediate_size
        experts = next((config[key] for key in _NUM_EXPERTS if config.get(key)), None)
        if not isinstance(experts, int) or experts < 2:
            return mlp
        width = config.get("moe_intermediate_size")
        width = width if isinstance(width, int) else self.intermediate_size
        return experts * self.hidden_size * (3 * width + 1)

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
        config = self.hf_config
        if nope := config.get("qk_nope_head_dim"):
            # Latent attention: a head has a part with positions and one without.
            return int(nope) + int(config.get("qk_rope_head_dim") or 0)
        size = _first(config, _HEAD_SIZES)
        return int(size) if size else self.hidden_size // self.num_attention_heads

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return asdict(self) | {
            "hf_config": dict(self.hf_config),
            "unmodelled": list(self.unmodelled),
        }

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild a shape from `to_json`, that of an older version included."""
        return cls(**{**mapping, "unmodelled": tuple(mapping.get("unmodelled", ()))})


def load_model_shape(name: str) -> ModelShape:
    """Find a model by preset name, by a path to a Hugging Face config, or by its Hub name.

    Args:
        name: a preset (`7b`), a `config.json`, a folder that holds one, or a name on the Hub
            (`Qwen/Qwen3-8B`) whose config is in the local Hugging Face cache.

    Raises:
        WorkloadError: there is no such preset, file or cached model, or its config is incomplete.
        NotJudgedError: the model is not a text decoder.
    """
    if (preset := PRESETS.get(name.lower())) is not None:
        return preset
    path = _config_file(name)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise WorkloadError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(config, dict):
        raise WorkloadError(f"{path}: holds a {type(config).__name__}, not a model config")
    _require_text_decoder(config, where=f"--model {name}")
    called = str(path.parent) if Path(name).exists() else name
    try:
        return shape_from_hf_config(config, name=called, where=str(path))
    except WorkloadError as error:
        if left_out := towers(config):
            # The missing dimensions are not the reason that it is not judged.
            raise NotJudgedError(_left_out(left_out, where=f"--model {name}")) from error
        raise


def require_judgeable(shape: ModelShape) -> None:
    """Check that a shape covers the whole model, and that its size can be predicted.

    Raises:
        NotJudgedError: a part of the model is not modelled, or it is too large.
    """
    where = f"--model {shape.name}"
    if shape.unmodelled:
        raise NotJudgedError(_left_out(shape.unmodelled, where=where))
    if shape.num_parameters > MAX_PARAMETERS:
        raise NotJudgedError(
            f"memory is not judged: {where}: {shape.num_parameters:.3g} parameters: models of at "
            f"most {MAX_PARAMETERS:.0e} are predicted"
        )
    if shape.num_hidden_layers > MAX_LAYERS:
        raise NotJudgedError(
            f"memory is not judged: {where}: num_hidden_layers={shape.num_hidden_layers}: models "
            f"of at most {MAX_LAYERS} layers are predicted"
        )


def _left_out(parts: tuple[str, ...], *, where: str) -> str:
    are = "is" if len(parts) == 1 else "are"
    return (
        f"memory is not judged: {where}: the {' and the '.join(parts)} {are} not modelled; "
        "decoder-only language models are supported. To plan the language model alone, give a "
        "config.json that holds only its text_config"
    )


def _config_file(name: str) -> Path:
    """Return the config file of a name.

    Raises:
        WorkloadError: there is none.
    """
    path = Path(name)
    if path.is_file():
        return path
    if path.is_dir():
        if (path / "model_index.json").is_file():
            raise NotJudgedError(
                f"memory is not judged: --model {name}: is a diffusion pipeline; decoder-only "
                "language models are supported"
            )
        if not (path / "config.json").is_file():
            raise WorkloadError(
                f"--model {name}: a folder without a config.json; give the folder of a Hugging "
                f"Face model, or a preset: {', '.join(PRESETS)}"
            )
        return path / "config.json"
    is_hub = is_hub_name(name)
    if is_hub and (cached := cached_config(name)) is not None:
        return cached
    if is_hub and "/" in name:
        raise WorkloadError(
            f"--model {name}: not in the local Hugging Face cache, and no such file or folder; "
            f"for the Hub's model run `hf download {name} config.json` first"
        )
    raise WorkloadError(
        f"--model {name}: neither a preset nor a Hugging Face config.json or model folder, nor a "
        f"Hub name (ORG/NAME) in the local Hugging Face cache; presets: {', '.join(PRESETS)}"
    )


def _require_text_decoder(config: Mapping[str, Any], *, where: str) -> None:
    """Check that a config is of a language model of the installed transformers."""
    where = f"memory is not judged: {where}"
    if (kind := other_kind(config)) is not None:
        raise NotJudgedError(
            f"{where}: is {kind}; decoder-only language models are supported, such as llama, "
            "qwen3, gemma2 or mixtral"
        )
    model_type = text_section(config).get("model_type")
    known = causal_types()
    if not isinstance(model_type, str) or not known or model_type in known or towers(config):
        return
    if config.get("auto_map"):
        raise NotJudgedError(
            f"{where}: model_type {model_type!r} is built by code in the model's repository "
            "(auto_map), which is never run here; use a model that the installed transformers has "
            "code for"
        )
    near = " or ".join(get_close_matches(model_type, known, n=3))
    raise NotJudgedError(
        f"{where}: model_type {model_type!r}: transformers {version('transformers')} has no such "
        "model" + (f"; did you mean {near}?" if near else "")
    )


def shape_from_hf_config(config: Mapping[str, Any], *, name: str, where: str) -> ModelShape:
    """Read the dimensions out of a Hugging Face config.

    Args:
        config: the parsed `config.json`; of a multimodal one `text_config` is read, and the other
            parts are listed in `unmodelled`.
        name: of the model.
        where: the file, for messages.

    Raises:
        WorkloadError: a dimension is missing or not a positive whole number; all are named.
    """
    unmodelled = towers(config)
    config = text_section(config)
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
    has_head_size = any(isinstance(config.get(key), int) for key in _HEAD_SIZES)
    if not faults and not has_head_size and found["hidden_size"] % found["num_attention_heads"]:
        faults.append(
            f"{where}: hidden_size={found['hidden_size']} is not divisible by "
            f"num_attention_heads={found['num_attention_heads']}, and no head_dim is given"
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
        unmodelled=unmodelled,
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
        # Dropout would change the losses from run to run.
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
"""Models by the usual names of their sizes."""
