"""Where a fact about a job comes from."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


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
