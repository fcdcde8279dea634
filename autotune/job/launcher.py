"""What reads a ds_config first, and what starts the ranks."""

from enum import StrEnum

from autotune.job.cpu_threads import RankLauncher


class Launcher(StrEnum):
    """Values of `--launcher`; rules depend on the reader."""

    DEEPSPEED = "deepspeed"
    """A program that passes the config to `deepspeed.initialize`."""
    HF = "hf"
    """The Hugging Face Trainer or Accelerate, which resolve "auto" and check values against their
    own arguments."""
    TORCHRUN = "torchrun"
    """Starts the ranks; the reader of the config is not known from it."""
    ACCELERATE = "accelerate"
    """`accelerate launch`: starts the ranks, and Accelerate reads the config."""

    @property
    def reader(self) -> "Launcher | None":
        """What reads the config first, DEEPSPEED or HF; None if unknown.

        Example:
            >>> Launcher.ACCELERATE.reader
            <Launcher.HF: 'hf'>
        """
        if self is Launcher.TORCHRUN:
            return None
        return Launcher.HF if self is Launcher.ACCELERATE else self

    @property
    def starter(self) -> RankLauncher | None:
        """What starts the ranks; None if unknown."""
        return RankLauncher(self.value) if self.value in set(RankLauncher) else None


READERS = (Launcher.DEEPSPEED, Launcher.HF)
"""Possible readers of a config."""
