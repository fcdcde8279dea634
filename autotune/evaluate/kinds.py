"""The kinds of evaluator by name, and what the numbers of each cannot show. No hardware here."""

from collections.abc import Mapping

MEASURED = "measured"
EMULATED = "emulated"

UNTIMED = "none"
"""Where the times of emulated collectives come from, if they take none; else catalogue or probe."""
_NOT_SHOWN: Mapping[str, tuple[str, ...]] = {
    EMULATED: (
        "the other ranks' share of the host's cores and memory bandwidth",
        "numerics: collectives do nothing, so losses are not compared",
    )
}


def not_shown(evaluator: str, communication: str | None) -> tuple[str, ...]:
    """Return what numbers of this kind leave out, a clause each; none for measured ones.

    Args:
        evaluator: the kind.
        communication: where the times of emulated collectives come from: `catalogue`, `probe` or
            `none`; None where ranks are real.
    """
    if evaluator != EMULATED:
        return ()
    timing = (
        "communication time"
        if communication in (None, UNTIMED)
        else f"real communication: collectives take the time that the {communication} says"
    )
    return (timing, *_NOT_SHOWN[evaluator])
