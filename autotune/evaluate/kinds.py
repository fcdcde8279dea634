"""The kinds of evaluator by name, and what the numbers of each cannot show. No hardware here."""

from collections.abc import Mapping

MEASURED = "measured"
EMULATED = "emulated"

_NOT_SHOWN: Mapping[str, tuple[str, ...]] = {
    EMULATED: (
        "communication time",
        "the other ranks' share of the host's cores and memory bandwidth",
        "numerics: collectives do nothing, so losses are not compared",
    )
}


def not_shown(evaluator: str) -> tuple[str, ...]:
    """Return what numbers of this kind leave out, a clause each; none for measured ones."""
    return _NOT_SHOWN.get(evaluator, ())
