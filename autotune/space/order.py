"""Orders searched keys: each after the keys that its condition names."""

from collections.abc import Collection, Iterator, Mapping

from autotune.space.parameter import Parameter


def ordered(parameters: Mapping[str, Parameter]) -> tuple[Parameter, ...]:
    """Return the parameters in file order, except that conditions come first.

    The conditions must name parameters that exist and must not form a cycle.
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
    """Yield a key and a fault for each cycle of conditions, once.

    Args:
        parents: the keys that the condition of each key names.
    """
    reported: set[str] = set()
    for key in parents:
        cycle = _cycle_from(key, parents, [])
        if cycle and not reported & set(cycle):
            reported |= set(cycle)
            yield (
                cycle[0],
                f"when: {' -> '.join([*cycle, cycle[0]])}: a cycle; remove one condition",
            )


def _cycle_from(
    key: str, parents: Mapping[str, Collection[str]], path: list[str]
) -> list[str] | None:
    if key in path:
        return path[path.index(key) :]
    for parent in parents.get(key, ()):
        cycle = _cycle_from(parent, parents, [*path, key])
        if cycle:
            return cycle
    return None
