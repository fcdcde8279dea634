"""Diagnoses a rank's failure from the exception, not from its log."""

from dataclasses import dataclass

import torch.distributed as dist

from autotune.study.outcome import Phase
from autotune.trial.device import Device
from autotune.trial.device.cuda_errors import advice_on, is_device_fault
from autotune.trial.failure_kind import FailureKind

_REFUSALS = (AssertionError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a rank failed, according to its exception."""

    kind: FailureKind
    message: str
    """One line for a reader."""
    needed_bytes: int | None = None
    """For `MEMORY` and `DEVICE_MEMORY`: what the rank held plus what it requested."""
    short_bytes: int | None = None
    """The missing part of it."""


def examine(error: BaseException, phase: Phase, device: Device | None) -> Diagnosis:
    """Classify an exception that ended a rank."""
    chain = _chain(error)
    text = f"{type(error).__name__}: {_one_line(error)}"
    found = [s for e in chain if device and (s := device.oom_of(e)) is not None]
    if found:
        oom = found[0]
        return Diagnosis(
            kind=oom.kind,
            message=f"{oom.describe()} ({text})",
            needed_bytes=oom.needed_bytes,
            short_bytes=oom.short_bytes,
        )
    faults = [e for e in chain if is_device_fault(e)]
    if faults:
        advice = advice_on(faults[0])
        return Diagnosis(kind=FailureKind.DEVICE, message=f"{advice} ({text})" if advice else text)
    if any(_is_of_peer(e) for e in chain):
        return Diagnosis(kind=FailureKind.PEER, message=text)
    if phase is Phase.INIT and any(_is_refusal(e) for e in chain):
        return Diagnosis(kind=FailureKind.INVALID, message=text)
    return Diagnosis(kind=FailureKind.ERROR, message=text)


def _chain(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _is_refusal(error: BaseException) -> bool:
    # Pydantic's ValidationError is a ValueError; DeepSpeedConfigError is not.
    return isinstance(error, _REFUSALS) or type(error).__name__ == "DeepSpeedConfigError"


def _is_of_peer(error: BaseException) -> bool:
    # gloo raises plain RuntimeErrors that name the file of its transport.
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and "gloo/transport" in str(error)
    )


def _one_line(error: BaseException) -> str:
    """Return the message in one line; pydantic and gloo write several, gloo very long ones."""
    return " ".join(str(error).split())[:400] or "no message"
