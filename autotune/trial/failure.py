"""What went wrong in a rank, told from the exception itself and not from its log."""

import torch.distributed as dist

from autotune.outcome import Phase
from autotune.trial.device import Device
from autotune.trial.failure_kind import FailureKind

_REFUSALS = (AssertionError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError)


def examine(
    error: BaseException, phase: Phase, device: Device | None
) -> tuple[FailureKind, int | None]:
    """Classify an exception that ended a rank.

    Returns:
        The kind, and for `MEMORY` the bytes that the rank held plus those it asked for.
    """
    chain = _chain(error)
    needed = [n for e in chain if device and (n := device.bytes_short_of(e)) is not None]
    if needed:
        return FailureKind.MEMORY, needed[0]
    if any(_is_of_peer(e) for e in chain):
        return FailureKind.PEER, None
    if phase is Phase.INIT and any(_is_refusal(e) for e in chain):
        return FailureKind.INVALID, None
    return FailureKind.ERROR, None


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
