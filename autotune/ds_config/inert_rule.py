"""What a rule about keys that cannot act is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from autotune.ds_config.facts import Facts

Condition: TypeAlias = Callable[[Facts, Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Keys that cannot act under a condition."""

    keys: frozenset[str]
    """Documented dotted names; `section.*` is every key below a section."""
    cannot_act: Condition
    """Sees the rest of the config and the key's own value."""
    why: str
    """One clause for a reader."""
    source: tuple[str, ...]
    """Where DeepSpeed shows it, each `file: function`."""

    def covers(self, key: str) -> bool:
        """Whether the rule is about a key."""
        return not self.keys.isdisjoint(_names(key))


@cache
def _names(key: str) -> frozenset[str]:
    """Return how rules may name a key: itself, or `section.*` for each section above it."""
    parts = key.split(".")
    return frozenset({key, *(".".join(parts[:n]) + ".*" for n in range(1, len(parts)))})


def rule(keys: frozenset[str], cannot_act: Condition, why: str, *source: str) -> Rule:
    """Build a rule; what the arguments mean stands at `Rule`."""
    return Rule(keys=keys, cannot_act=cannot_act, why=why, source=source)


def below(section: str, keys: str) -> frozenset[str]:
    """Return the dotted names of keys, given in one text, of a section."""
    return frozenset(f"{section}.{key}" for key in keys.split())
