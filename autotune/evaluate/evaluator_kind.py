"""The kinds of evaluator, and the limits of the numbers of each."""

from collections.abc import Mapping
from enum import StrEnum


class EvaluatorKind(StrEnum):
    """How the numbers of a trial are made; printed beside each of them."""

    MEASURED = "measured"
    """All ranks of the job run, one per device."""
    EMULATED = "emulated"
    """One device plays one rank of the job."""
    MODELLED = "modelled"
    """Nothing runs; memory and speed are predicted."""


UNTIMED = "none"
"""Source of the times of emulated collectives that take none; else catalogue or probe."""
_CAVEATS: Mapping[str, tuple[str, ...]] = {
    EvaluatorKind.EMULATED: (
        "the other ranks' share of the host's cores and memory bandwidth",
        "waits for the slowest rank, so steps that wait for Python come out too short",
        "numerics: collectives do nothing, so losses are not compared",
    ),
    EvaluatorKind.MODELLED: (
        "anything measured: nothing ran, memory and speed are predicted",
        "numerics: there are no losses to compare",
    ),
}


def caveats_of(evaluator: str, communication: str | None) -> tuple[str, ...]:
    """Return what the numbers of this kind omit, a clause each; none for measured ones.

    Args:
        evaluator: the kind.
        communication: source of the times of collectives: `catalogue`, `probe` or `none`; None
            where ranks are real.
    """
    if evaluator == EvaluatorKind.MODELLED:
        return _CAVEATS[evaluator]
    if evaluator != EvaluatorKind.EMULATED:
        return ()
    timing = (
        "communication time"
        if communication in (None, UNTIMED)
        else f"real communication: collectives take the time that the {communication} says"
    )
    return (timing, *_CAVEATS[evaluator])
