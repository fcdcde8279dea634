"""The precision of a config compared with the units of its device."""

from collections.abc import Iterator

from autotune.job.device import Device
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule import Fault, located
from autotune.lint.rule_info import RuleInfo
from autotune.lint.subject import Subject

DEVICE_PRECISION = "device-precision"
_PASCAL = ("p100",)
"""Prefixes of devices of compute capability 6."""

RULE_INFOS: tuple[RuleInfo, ...] = (
    RuleInfo(
        id=DEVICE_PRECISION,
        severity=Severity.WARNING,
        text="""The device has no units for the precision of the config.

bf16 needs Ampere or later. On a V100, T4 or another GPU of those generations torch emulates it:
`torch/cuda/__init__.py: is_bf16_supported`, which DeepSpeed calls in `runtime/engine.py:
_do_sanity_check`, returns True. The run starts, and computes at the speed of fp32 or below. fp16 on
a P100 is an error: DeepSpeed refuses compute capability 6
(`accelerator/cuda_accelerator.py: is_fp16_supported`) unless DS_ALLOW_DEPRECATED_FP16 is 1.

Suggestion: fp16 with loss scaling on such a GPU, or a newer GPU.""",
    ),
)


def precision_findings(subject: Subject, device: Device | None) -> Iterator[Finding]:
    """Yield a precision that the device does not have.

    Args:
        subject: the config and its launch.
        device: of every rank; nothing is reported for an unknown one.
    """
    if device is None or not device.fp16_flops:
        return
    if subject.enabled("bf16") and not device.bf16_flops:
        fault = Fault(
            field="bf16.enabled",
            message=f"{device.name} has no bf16 units: torch emulates it, at the speed of fp32 or "
            "below",
            suggestion='use "fp16": {"enabled": true}, or an Ampere GPU or later',
        )
        yield located(subject, fault, rule=DEVICE_PRECISION, severity=Severity.WARNING)
    if subject.enabled("fp16") and device.name.startswith(_PASCAL):
        fault = Fault(
            field="fp16.enabled",
            message=f"DeepSpeed refuses fp16 on {device.name}, whose compute capability is 6",
            suggestion="set DS_ALLOW_DEPRECATED_FP16=1 for the ranks, or train in fp32",
        )
        yield located(subject, fault, rule=DEVICE_PRECISION, severity=Severity.ERROR)
