"""Spaces written in a test."""

from autotune.space import SearchSpace
from autotune.space.reading import read_parameters


def space_of(*lines: str) -> SearchSpace:
    text = "parameters:\n" + "".join(f"  {line}\n" for line in lines)
    return SearchSpace(name="mine", parameters=read_parameters(text, source="mine.yaml"))
