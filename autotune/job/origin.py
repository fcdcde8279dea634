"""The sources of the facts about a job."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

_ASSUMPTIONS = {
    "seq_len": ("sequence length", "--seq-len"),
    "micro_batch_size": ("micro batch", "--hf-args"),
    "global_batch_size": ("global batch", "--global-batch-size"),
    "precision": ("precision", "--precision"),
    "optimizer": ("optimizer", "--client-optimizer"),
}
"""Facts that have a default: their name in messages, and the option that states them."""


class Origin(StrEnum):
    """The source of a fact; a source that is listed earlier has priority."""

    OPTION = "option"
    """An option of the command line, or an argument in Python."""
    JOB_FILE = "job file"
    """`autotune.yaml`."""
    DS_CONFIG = "ds_config"
    """The config that is judged, or `--base`."""
    HF_ARGS = "hf_args"
    """The TrainingArguments of `--hf-args`, or their defaults."""
    RECORD = "record"
    """`record.json` of `--baseline`."""
    TRAINER = "Trainer default"
    """The Hugging Face Trainer's value for "auto" without arguments."""
    DEEPSPEED = "DeepSpeed default"
    TRANSFORMERS = "transformers default"
    PRESET = "preset"
    """autotune's own default."""

    @property
    def is_assumed(self) -> bool:
        """Whether no source states the fact; every command prints assumed facts."""
        return self in (Origin.TRAINER, Origin.PRESET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One fact about a job."""

    value: Any
    origin: Origin

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        value = self.value
        plain = value is None or isinstance(value, bool | int | float | str)
        return {"value": value if plain else str(value), "origin": self.origin.value}

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild a fact from `to_json`."""
        return cls(value=mapping["value"], origin=Origin(mapping["origin"]))


def assumed_phrases(facts: Mapping[str, Fact]) -> tuple[str, ...]:
    """Return the assumed facts, a phrase each."""
    return tuple(
        f"{word} {facts[name].value} ({facts[name].origin.value}; {option} not given)"
        for name, (word, option) in _ASSUMPTIONS.items()
        if name in facts and facts[name].origin.is_assumed
    )
