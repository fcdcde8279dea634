"""gpt-neox's YAML: DeepSpeed's keys at the top level, together with the model's.

Source: gpt-neox, megatron/neox_arguments: dashes and underscores are equivalent, and the fields of
`NeoXArgsDeepspeedConfig` are passed to DeepSpeed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotune.ds_config.fields.table import field_of
from autotune.lint.document.reading import Reading
from autotune.lint.subject import Launch, Subject

_SIGNS = frozenset(
    [
        "pipe_parallel_size",
        "model_parallel_size",
        "num_layers",
        "hidden_size",
        "num_attention_heads",
        "seq_length",
        "max_position_embeddings",
        "pos_emb",
        "train_iters",
        "lr_decay_style",
        "lr_decay_iters",
        "vocab_file",
        "data_impl",
        "checkpoint_activations",
        "no_weight_tying",
        "make_vocab_size_divisible_by",
    ]
)
_SIGNS_NEEDED = 3
_OTHER_MEANING = frozenset({"seed", "checkpoint", "pipeline", "inference"})
"""Keys of both, which gpt-neox does not pass on."""


def is_neox(value: Mapping[str, Any]) -> bool:
    """Whether a mapping is a gpt-neox config.

    Example:
        >>> is_neox({"num-layers": 6, "hidden-size": 256, "pipe-parallel-size": 0})
        True
    """
    return len({_underscored(key) for key in value} & _SIGNS) >= _SIGNS_NEEDED


def spellings(value: Mapping[str, Any]) -> dict[str, str]:
    """Return the top-level ds_config keys that the file spells differently, with its spelling."""
    return {key: written for key, written in _deepspeed_keys(value).items() if key != written}


def subject_of(reading: Reading, launch: Launch) -> Subject:
    """Return DeepSpeed's part of a gpt-neox config.

    Args:
        reading: the file.
        launch: the planned run; the file fills missing pipeline stages and tensor-parallel ranks.
    """
    value: Mapping[str, Any] = reading.value
    plain = {_underscored(key): given for key, given in value.items()}
    launch = replace(
        launch,
        pipeline_stages=launch.pipeline_stages or _size(plain.get("pipe_parallel_size")),
        tensor_parallel=launch.tensor_parallel or _size(plain.get("model_parallel_size")),
    )
    written = _deepspeed_keys(value)
    names = {spelled: key for key, spelled in written.items()}
    positions = {}
    for path, place in reading.positions.items():
        head, dot, rest = path.partition(".")
        if head in names:
            positions[names[head] + dot + rest] = place
    config = {key: value[spelled] for key, spelled in written.items()}
    return Subject(config=config, launch=launch, positions=positions, form="neox")


def _deepspeed_keys(value: Mapping[str, Any]) -> dict[str, str]:
    """Return the top-level keys that are DeepSpeed's, with the file's spelling of each."""
    return {
        _underscored(key): key
        for key in value
        if _underscored(key) not in _OTHER_MEANING and field_of(_underscored(key)) is not None
    }


def _size(given: Any) -> int | None:
    whole = isinstance(given, int) and not isinstance(given, bool)
    return given if whole and given > 1 else None


def _underscored(key: str) -> str:
    return key.replace("-", "_")
