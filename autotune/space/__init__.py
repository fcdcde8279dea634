"""The search space: which keys a study may change, read from `search_spaces/*.yaml`."""

from autotune.space.parameter import Choices, FloatRange, IntRange, Kind, Parameter
from autotune.space.space import SearchSpace, load_space, space_names

__all__ = [
    "Choices",
    "FloatRange",
    "IntRange",
    "Kind",
    "Parameter",
    "SearchSpace",
    "load_space",
    "space_names",
]
