"""The precision of a job."""

from collections.abc import Mapping

from autotune.job.device import Device
from autotune.job.job import Job
from autotune.job.launcher import Launcher
from autotune.job.origin import Fact, Origin
from autotune.lint.subject import Subject

PRECISION_SECTIONS = frozenset({"bf16", "fp16", "bfloat16"})
_FIRST = (Origin.OPTION, Origin.JOB_FILE)


def precision_of(
    subject: Subject, *, job: Job, facts: Mapping[str, Fact], device: Device | None
) -> Fact:
    """Return bf16, fp16 or fp32, with its origin.

    Args:
        subject: the ds_config and its launch.
        job: the merged options.
        facts: of the job, with their origins.
        device: of every rank; the default depends on it.
    """
    known = facts.get("precision")
    if known is not None and known.origin in _FIRST:
        return known
    if subject.config and (written := _written(subject)) is not None:
        return written
    if known is not None:
        return known
    # A device of the user's own may be described without any speed.
    has_bf16 = device is None or bool(device.bf16_flops) or not device.fp16_flops
    return Fact(value="bf16" if has_bf16 else "fp16", origin=Origin.PRESET)


def _written(subject: Subject) -> Fact | None:
    """Return the precision of a ds_config; None where the Trainer chooses it."""
    for name, keys in {"bf16": ("bf16", "bfloat16"), "fp16": ("fp16",)}.items():
        if any(subject.enabled(key) for key in keys):
            return Fact(value=name, origin=Origin.DS_CONFIG)
    sections = [subject.section(name) for name in PRECISION_SECTIONS]
    present = [section for section in sections if section is not None]
    if any(section.get("enabled") == "auto" for section in present):
        return None
    if present:
        return Fact(value="fp32", origin=Origin.DS_CONFIG)
    # Accelerate adds the missing section (utils/dataclasses.py: set_mixed_precision).
    if subject.launch.launcher is Launcher.HF:
        return None
    return Fact(value="fp32", origin=Origin.DEEPSPEED)
