"""The order of searched keys: each after the keys that its condition names."""

from collections.abc import Collection, Iterator, Mapping

from autotune.space.parameter import Parameter


def ordered(parameters: Mapping[str, Parameter]) -> tuple[Parameter, ...]:
    """Return the parameters in file order, except that conditions come first.

    The conditions must name parameters that exist and must not run in a circle.
    """
    placed: dict[str, Parameter] = {}

    def place(key: str) -> None:
        if key not in placed:
            for parent in parameters[key].when:
                place(parent)
            placed[key] = parameters[key]

    for key in parameters:
        place(key)
    return tuple(placed.values())


def cycle_faults(parents: Mapping[str, Collection[str]]) -> Iterator[tuple[str, str]]:
    """Yield a key and a fault for each circle of conditions, once.

    Args:
        parents: the keys that the condition of each key names.
    """
    reported: set[str] = set()
    for key in parents:
        circle = _circle_from(key, parents, [])
        if circle and not reported & set(circle):
            reported |= set(circle)
            yield (
                circle[0],
                f"when: {' -> '.join([*circle, circle[0]])}: runs in a circle; drop one condition",
            )


def _circle_from(
    key: str, parents: Mapping[str, Collection[str]], path: list[str]
) -> list[str] | None:
    if key in path:
        return path[path.index(key) :]
    for parent in parents.get(key, ()):
        circle = _circle_from(parent, parents, [*path, key])
        if circle:
            return circle
    return None
