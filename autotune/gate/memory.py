"""Does the job fit: device and host, by the memory model."""

from dataclasses import dataclass
from typing import Any

from autotune.gate.page import Page
from autotune.hardware import Device
from autotune.lint.finding import Finding
from autotune.lint.subject import Subject
from autotune.model_shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySetting:
    """What memory is judged by, beside the subject and its launch; None is not known."""

    shape: ModelShape | None = None
    """The model, or an assumed one where only its size is known."""
    device: Device | None = None
    """What every rank runs on; all of its memory may be used."""
    host_bytes: int | None = None
    """Memory of one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryJudgement:
    """What the memory model says."""

    findings: tuple[Finding, ...] = ()
    memory: dict[str, Any] | None = None
    """As `autotune plan --json` prints it; None where nothing could be predicted."""
    reason: str | None = None
    """Why there is no memory; None if there is."""


PAGES: tuple[Page, ...] = ()
"""Of the rules that `judge_memory` applies."""


def judge_memory(subject: Subject, *, setting: MemorySetting) -> MemoryJudgement:
    """Predict the memory of a config and judge it.

    Args:
        subject: the config and its launch.
        setting: the model's shape, the device and the host.
    """
    del subject, setting
    return MemoryJudgement(reason="not judged")
