"""The kinds of evaluator by name, and what the numbers of each cannot show. No hardware here."""

from collections.abc import Mapping
from enum import StrEnum


class EvaluatorKind(StrEnum):
    """How the numbers of a trial came about; printed beside every one of them."""

    MEASURED = "measured"
    """As many real ranks as the job has, one per device."""
    EMULATED = "emulated"
    """One device plays one rank of the job."""
    MODELLED = "modelled"
    """Nothing runs; memory and speed are predicted."""


UNTIMED = "none"
"""Where the times of emulated collectives come from, if they take none; else catalogue or probe."""
_NOT_SHOWN: Mapping[str, tuple[str, ...]] = {
    EvaluatorKind.EMULATED: (
        "the other ranks' share of the host's cores and memory bandwidth",
        "waits for the slowest rank, so steps that wait for Python come out too short",
        "numerics: collectives do nothing, so losses are not compared",
    ),
    EvaluatorKind.MODELLED: (
        "anything measured: nothing ran, memory and speed are what models say",
        "numerics: there are no losses to compare",
    ),
}


def not_shown(evaluator: str, communication: str | None) -> tuple[str, ...]:
    """Return what numbers of this kind leave out, a clause each; none for measured ones.

    Args:
        evaluator: the kind.
        communication: where the times of collectives come from: `catalogue`, `probe` or `none`;
            None where ranks are real.
    """
    if evaluator == EvaluatorKind.MODELLED:
        return _NOT_SHOWN[evaluator]
    if evaluator != EvaluatorKind.EMULATED:
        return ()
    timing = (
        "communication time"
        if communication in (None, UNTIMED)
        else f"real communication: collectives take the time that the {communication} says"
    )
    return (timing, *_NOT_SHOWN[evaluator])
