"""The kind of model of a Hugging Face config, and whether it is a text decoder.

The tables of the installed transformers decide. They are read from its source, since an import
takes seconds.
"""

import ast
import importlib.util
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

_TOWER = re.compile(r"^(vision|visual|image|audio|speech|video|vq|qformer|talker|token2wav)")
"""First word of the config sections that describe an encoder beside the language model."""
_TEXT_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")
_RECURRENT = re.compile(r"mamba|rwkv|xlstm|retnet|hyena|jamba|bamba|zamba|recurrent|griffin")
_CAUSAL = "CAUSAL_LM"
_KNOWN = frozenset({"llama", "mistral", "qwen2", "mixtral", "gpt2", "opt"})
"""Text decoders for which no table needs to be read."""
# Tables of transformers; the first one with a model type decides.
_Kinds = tuple[tuple[tuple[str, ...], str], ...]
_KINDS: _Kinds = (
    (("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ"), "an encoder-decoder model"),
    (("MASKED_LM",), "an encoder"),
)
"""Tables of models that transformers also lists as decoders."""
_OTHER_KINDS: _Kinds = (
    (("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM"), "a vision-language model"),
    (("ZERO_SHOT_IMAGE_CLASSIFICATION",), "an image-text encoder"),
    (("IMAGE_CLASSIFICATION", "IMAGE", "BACKBONE", "OBJECT_DETECTION"), "an image model"),
    (("VIDEO_CLASSIFICATION",), "a video model"),
    (("AUDIO_CLASSIFICATION", "CTC", "TEXT_TO_WAVEFORM", "TEXT_TO_SPECTROGRAM"), "an audio model"),
    (("TIME_SERIES_PREDICTION",), "a time series model"),
    (("TEXT_ENCODING", "SEQUENCE_CLASSIFICATION"), "an encoder"),
    (("",), "a model without a language model's head"),
)


def text_section(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the section of a config that describes the language model; without one, the config."""
    for name in _TEXT_SECTIONS:
        if isinstance(inner := config.get(name), Mapping):
            return text_section(inner)
    return config


def towers(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of a model beside its language model, such as `vision tower of llava`."""
    kind = config.get("model_type")
    owner = f" of {kind}" if isinstance(kind, str) else ""
    found = [
        f"{match[1]} tower{owner}"
        for name, section in config.items()
        if isinstance(section, Mapping) and (match := _TOWER.match(name))
    ]
    inner = next((config[name] for name in _TEXT_SECTIONS if config.get(name)), None)
    if isinstance(inner, Mapping):
        found += towers(inner)
    known = not isinstance(kind, str) or kind in _KNOWN
    if not found and not known and kind in _types("IMAGE_TEXT_TO_TEXT"):
        found.append(f"vision tower{owner}")
    return tuple(dict.fromkeys(found))


def other_kind(config: Mapping[str, Any]) -> str | None:
    """Return the kind of a model that is not a text decoder; None for a decoder or an unknown one.

    Args:
        config: the whole `config.json`.

    Example:
        >>> other_kind({"model_type": "t5"})
        'an encoder-decoder model (model_type t5)'
    """
    if "_class_name" in config or "_diffusers_version" in config:
        return f"a part of a diffusion model ({config.get('_class_name', 'no class named')})"
    kind = config.get("model_type")
    if not isinstance(kind, str) or text_section(config) is not config or towers(config):
        return None
    what = _kind_of_type(kind, is_decoder=config.get("is_decoder") is True)
    if config.get("is_encoder_decoder") is True:
        what = _KINDS[0][1]
    return what and f"{what} (model_type {kind})"


def _kind_of_type(model_type: str, *, is_decoder: bool) -> str | None:
    if model_type in _KNOWN:
        return None
    what = None if is_decoder else _first_kind(model_type, _KINDS)
    if what is None and (_RECURRENT.search(model_type) or _keeps_state(model_type)):
        what = "a model with state-space or recurrent layers"
    if what is None and model_type not in _types(_CAUSAL):
        what = _first_kind(model_type, _OTHER_KINDS)
    return what


def _first_kind(model_type: str, kinds: _Kinds) -> str | None:
    return next(
        (what for tables, what in kinds if any(model_type in _types(table) for table in tables)),
        None,
    )


def causal_types() -> frozenset[str]:
    """Return the model types of causal language models in the installed transformers."""
    return _types(_CAUSAL)


def _types(table: str) -> frozenset[str]:
    """Return the model types of a table of transformers; of its base models without a name.

    Empty where this version of transformers has no such table.
    """
    name = f"MODEL_FOR_{table}_MAPPING_NAMES" if table else "MODEL_MAPPING_NAMES"
    return _tables().get(name, frozenset())


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, frozenset[str]]:
    source = _models_folder() / "auto" / "modeling_auto.py"
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return {}
    found: dict[str, frozenset[str]] = {}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(target, ast.Name) or not isinstance(node, ast.Assign):
            continue
        if target.id.endswith("_MAPPING_NAMES"):
            # Pairs of two strings; other entries are ignored.
            pairs = (n.elts for n in ast.walk(node.value) if isinstance(n, ast.Tuple))
            firsts = (pair[0] for pair in pairs if pair)
            found[target.id] = frozenset(
                str(first.value) for first in firsts if isinstance(first, ast.Constant)
            )
    return found


@lru_cache(maxsize=64)
def _keeps_state(model_type: str) -> bool:
    """Whether the model's layers carry a state from token to token, by transformers' source."""
    name = model_type.replace("-", "_").removesuffix("_text")
    source = _models_folder() / name / f"modeling_{name}.py"
    try:
        return re.search(r"^\s+_is_stateful = True", source.read_text("utf-8"), re.M) is not None
    except (OSError, ValueError):
        return False


def _models_folder() -> Path:
    found = importlib.util.find_spec("transformers")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "models"
