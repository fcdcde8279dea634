"""The micro batch of a subject, as its launcher would work it out."""

from dataclasses import dataclass

from autotune.job.launcher import Launcher
from autotune.lint.subject import Subject

MICRO_BATCH = "train_micro_batch_size_per_gpu"
ACCUMULATION = "gradient_accumulation_steps"
_HF_MICRO_BATCH = "per_device_train_batch_size"
_HF_DEFAULT_MICRO_BATCH = 8
"""Of TrainingArguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one rank does per optimizer step."""

    micro: int
    """Sequences of a micro step."""
    accumulation: int
    """Micro steps of an optimizer step."""
    is_said: bool
    """Whether config or arguments say the micro batch; else it is the least there is."""


def read_batch(subject: Subject, *, ranks: int) -> Batch:
    """Return micro batch and accumulation.

    Sizes that contradict each other are the batch rule's: the micro batch counts here, since
    memory depends on it.

    Args:
        subject: the config and its launch.
        ranks: data-parallel ranks.
    """
    train, micro, steps = (
        _size(subject, key) for key in ("train_batch_size", MICRO_BATCH, ACCUMULATION)
    )
    arguments = subject.launch.hf_args
    if arguments is not None and subject.launch.launcher is Launcher.HF:
        micro = micro or _argument(arguments.get(_HF_MICRO_BATCH, _HF_DEFAULT_MICRO_BATCH))
        steps = steps or _argument(arguments.get(ACCUMULATION, 1))
    if micro is None and train is not None:
        micro = max(train // (ranks * (steps or 1)), 1)
    if steps is None and micro is not None and train is not None:
        steps = max(train // (ranks * micro), 1)
    return Batch(micro=micro or 1, accumulation=steps or 1, is_said=micro is not None)


def _size(subject: Subject, key: str) -> int | None:
    return _argument(subject.number(key))


def _argument(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 1 <= value < float("inf") else None
