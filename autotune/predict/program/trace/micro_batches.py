"""A program at any micro batch, from its traces at two: every tensor grows linearly."""

from autotune.predict.program.events import ALLOCATE, Event, Program

TRACED = (2, 3)
"""Micro batches from which larger ones follow. A single sequence may be laid out otherwise."""


def scaled(traced: tuple[Program, Program], micro_batch_size: int) -> Program | None:
    """Return the program of a larger micro batch.

    Args:
        traced: the programs at the micro batches of `TRACED`.
        micro_batch_size: sequences of a micro step.

    Returns:
        The program; None where the two differ in more than the sizes of tensors.
    """
    small, large = traced
    if len(small.events) != len(large.events) or small.parameters != large.parameters:
        return None
    more = micro_batch_size - TRACED[0]
    events: list[Event] = []
    for one, other in zip(small.events, large.events, strict=True):
        if one == other:
            events.append(one)
            continue
        (kind, slot, num_bytes, item), (_, _, larger, _) = one, other
        if kind != ALLOCATE or other != (kind, slot, larger, item) or larger < num_bytes:
            return None
        events.append((kind, slot, num_bytes + more * (larger - num_bytes), item))
    return Program(small.parameters, tuple(events), small.num_slots)
