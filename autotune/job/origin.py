"""Where a fact about a job comes from."""

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
"""Facts that are taken from a default where no source states them, and what would."""


class Origin(StrEnum):
    """The source of a fact; of two sources the one listed first counts."""

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
    """What the Hugging Face Trainer puts in place of "auto" without arguments."""
    DEEPSPEED = "DeepSpeed default"
    TRANSFORMERS = "transformers default"
    PRESET = "preset"
    """autotune's own default."""

    @property
    def is_assumed(self) -> bool:
        """Whether no source names the fact: every command prints what is assumed."""
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
    """Return what no source states and was taken all the same, a phrase each."""
    return tuple(
        f"{word} {facts[name].value} ({facts[name].origin.value}; {option} not given)"
        for name, (word, option) in _ASSUMPTIONS.items()
        if name in facts and facts[name].origin.is_assumed
    )
