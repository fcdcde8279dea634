"""What a record says of the run that config and launch leave open."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from autotune.job.workload import Workload
from autotune.lint.subject import Launch, Subject

_USUAL_ATTENTION = "sdpa"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """How the runs of a record were set up, beside their ds_config; None is not known."""

    seq_len: int | None = None
    activation_checkpointing: bool | None = None
    attn_implementation: str | None = None

    @classmethod
    def of(cls, workload: Workload, model_settings: Mapping[str, Any]) -> Self:
        """Read a record's workload and `model_settings`."""
        checkpoints = model_settings.get("activation_checkpointing")
        attention = model_settings.get("attn_implementation")
        return cls(
            seq_len=workload.seq_len,
            activation_checkpointing=checkpoints if isinstance(checkpoints, bool) else None,
            attn_implementation=attention if isinstance(attention, str) else None,
        )


def completed(subject: Subject, recorded: Recorded) -> tuple[Subject, tuple[str, ...]]:
    """Return a subject whose launch has from the record what nobody said, and what that is."""
    launch = subject.launch
    checkpoints = launch.activation_checkpointing
    taken = replace(
        launch,
        seq_len=launch.seq_len or recorded.seq_len,
        activation_checkpointing=(
            recorded.activation_checkpointing if checkpoints is None else checkpoints
        ),
    )
    return replace(subject, launch=taken), tuple(_words(launch, taken, recorded))


def _words(launch: Launch, taken: Launch, recorded: Recorded) -> Iterator[str]:
    if launch.seq_len != taken.seq_len:
        yield f"sequences of {taken.seq_len} tokens (as in the record)"
    if launch.activation_checkpointing != taken.activation_checkpointing:
        how = "with" if taken.activation_checkpointing else "without"
        yield f"{how} activation checkpointing (as in the record)"
    if recorded.attn_implementation not in (None, _USUAL_ATTENTION):
        yield f"{recorded.attn_implementation} attention (as in the record)"
