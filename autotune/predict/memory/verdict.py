"""Combines estimates to one verdict, where the user left a setting open."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from autotune.predict.memory.estimate import MemoryEstimate
from autotune.predict.training_job import ModelSettings


class Room(StrEnum):
    """How an estimate compares with its ceilings."""

    FITS = "fits"
    """Even if the prediction is low by its margin."""
    TIGHT = "tight"
    """Only if the prediction is right."""
    TOO_LARGE = "too large"


class Verdict(StrEnum):
    """The gate's verdict about memory."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


def room(estimate: MemoryEstimate) -> Room:
    """Return how an estimate compares with the known ceilings; FITS without any.

    What counts is whether the job runs out of memory: one whose allocator frees its cache in every
    step is slow, but it runs.
    """
    device, host = estimate.device, estimate.host
    if device.runs is not False and host.fits is not False:
        return Room.FITS
    tight_device = device.runs_bare is not False
    tight_host = host.ceiling_bytes is None or host.total_bytes <= host.ceiling_bytes
    return Room.TIGHT if tight_device and tight_host else Room.TOO_LARGE


def judge(estimates: Sequence[MemoryEstimate]) -> Verdict:
    """Judge a config whose estimate depends on open settings: one estimate per assumption.

    Returns:
        OK if it fits under every assumption, ERROR if under none, else WARNING.
    """
    rooms = {room(estimate) for estimate in estimates}
    if rooms <= {Room.FITS}:
        return Verdict.OK
    return Verdict.ERROR if rooms == {Room.TOO_LARGE} else Verdict.WARNING


def assumptions(
    settings: ModelSettings, *, activation_checkpointing: bool | None
) -> tuple[ModelSettings, ...]:
    """Return the possible settings, most favourable first.

    Args:
        settings: the given settings.
        activation_checkpointing: None if not given. For a model with frozen parameters the place of
        the trained ones is then unknown too, which matters more: in adapters everywhere (with
        checkpointing), or on top of a frozen base that keeps nothing.
    """
    if activation_checkpointing is not None:
        return (replace(settings, activation_checkpointing=activation_checkpointing),)
    with_it = replace(settings, activation_checkpointing=True)
    if settings.trainable_parameters is not None:
        return with_it, replace(settings, trained_on_top=True)
    return with_it, replace(settings, activation_checkpointing=False)
