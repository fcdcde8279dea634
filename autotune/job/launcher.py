"""Who reads a ds_config first."""

from enum import StrEnum


class Launcher(StrEnum):
    """Who reads the config first."""

    DEEPSPEED = "deepspeed"
    """A program that hands it to `deepspeed.initialize`."""
    HF = "hf"
    """The Hugging Face Trainer or Accelerate, which resolve "auto" and check values against their
    own arguments."""
