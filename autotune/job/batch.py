"""The batch sizes of a job, computed as its launcher does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.ds_config.build import nearest_divisors
from autotune.errors import WorkloadError
from autotune.job.launcher import Launcher
from autotune.job.origin import Origin
from autotune.job.trainer import DEFAULT_MICRO_BATCH, accumulation_of, micro_batch_of
from autotune.lint.subject import Subject

TRAIN_BATCH = "train_batch_size"
MICRO_BATCH = "train_micro_batch_size_per_gpu"
ACCUMULATION = "gradient_accumulation_steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Batch sizes of one rank."""

    micro: int
    """Sequences of a micro step."""
    accumulation: int
    """Micro steps of an optimizer step."""
    origin: Origin | None
    """Source of the micro batch; None is unknown, and `micro` is 1."""

    @property
    def is_open(self) -> bool:
        """Whether the micro batch is unknown or assumed."""
        return self.origin is None or self.origin.is_assumed


def resolve_batch(
    subject: Subject,
    *,
    ranks: int,
    global_batch_size: int | None = None,
    recorded: int | None = None,
) -> Batch:
    """Return micro batch and accumulation.

    The batch rule reports sizes that contradict each other. Here the micro batch has priority,
    since memory depends on it.

    Args:
        subject: the config and its launch.
        ranks: data-parallel ranks.
        global_batch_size: sequences per optimizer step, given beside the ds_config.
        recorded: the micro batch of a record.

    Raises:
        WorkloadError: the given global batch cannot be divided into the micro batches.
    """
    micro, origin = _micro_batch(subject)
    steps = _size(subject, ACCUMULATION)
    arguments = _arguments(subject)
    if steps is None and arguments is not None:
        steps = accumulation_of(arguments)
    train = global_batch_size or _size(subject, TRAIN_BATCH)
    # A given accumulation leaves one micro batch for the given global batch.
    chooses = _fills_auto(subject) and global_batch_size is not None and steps is None
    if micro is None and train is not None and not chooses:
        micro, origin = max(train // (ranks * (steps or 1)), 1), Origin.DS_CONFIG
    if micro is None and _fills_auto(subject):
        micro, origin = _trainer_default(global_batch_size, ranks), Origin.TRAINER
    if micro is None and recorded is not None:
        micro, origin = recorded, Origin.RECORD
    if global_batch_size is not None:
        steps = _steps_of(global_batch_size, micro=micro or 1, ranks=ranks)
    elif steps is None and micro is not None and train is not None:
        steps = max(train // (ranks * micro), 1)
    return Batch(micro=micro or 1, accumulation=steps or 1, origin=origin)


def _micro_batch(subject: Subject) -> tuple[int | None, Origin | None]:
    if (micro := _size(subject, MICRO_BATCH)) is not None:
        return micro, Origin.DS_CONFIG
    arguments = _arguments(subject)
    return (None, None) if arguments is None else (micro_batch_of(arguments), Origin.HF_ARGS)


def _arguments(subject: Subject) -> Mapping[str, Any] | None:
    """Return the TrainingArguments if the Trainer reads the config."""
    launch = subject.launch
    return launch.hf_args if launch.launcher is Launcher.HF else None


def _fills_auto(subject: Subject) -> bool:
    """Whether the Trainer fills the micro batch from its default, since no arguments are given.

    Accelerate alone takes it from the program's data loader, so it is unknown.
    """
    value, launch = subject.value(MICRO_BATCH), subject.launch
    # Under the Trainer a missing key is filled like "auto".
    is_auto = value == "auto" or (value is None and launch.launcher is Launcher.HF)
    return is_auto and subject.form == "ds_config" and launch.hf_args is None


def _trainer_default(global_batch_size: int | None, ranks: int) -> int:
    """Return the Trainer's micro batch, or less where it does not divide the given batch."""
    if global_batch_size is None or global_batch_size % ranks:
        return DEFAULT_MICRO_BATCH
    sizes = range(DEFAULT_MICRO_BATCH, 0, -1)
    return next(size for size in sizes if global_batch_size // ranks % size == 0)


def _steps_of(global_batch_size: int, *, micro: int, ranks: int) -> int:
    per_rank, rest = divmod(global_batch_size, ranks)
    if rest or not per_rank:
        choices = [n for n in (per_rank * ranks, (per_rank + 1) * ranks) if n]
        raise WorkloadError(
            f"global_batch_size={global_batch_size}: not divisible by {ranks} ranks; nearest: "
            f"{' or '.join(map(str, choices))}"
        )
    if per_rank % micro:
        raise WorkloadError(
            f"{MICRO_BATCH}={micro}: does not divide the {per_rank} sequences of a rank "
            f"(global batch {global_batch_size} / {ranks} ranks); nearest: "
            f"{', '.join(map(str, nearest_divisors(per_rank, micro)))}"
        )
    return per_rank // micro


def _size(subject: Subject, key: str) -> int | None:
    number = subject.number(key)
    return int(number) if number is not None and 1 <= number < float("inf") else None
