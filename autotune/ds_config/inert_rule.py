"""Rules about keys that cannot act."""

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
    """Called with the facts of the config and the key's value."""
    why: str
    """One clause for a reader."""
    source: tuple[str, ...]
    """Evidence in DeepSpeed's source, each `file: function`."""

    def covers(self, key: str) -> bool:
        """Whether the rule is about a key."""
        return not self.keys.isdisjoint(_names(key))


@cache
def _names(key: str) -> frozenset[str]:
    """Return the names that match a key: itself, and `section.*` for each section above it."""
    parts = key.split(".")
    return frozenset({key, *(".".join(parts[:n]) + ".*" for n in range(1, len(parts)))})


def rule(keys: frozenset[str], cannot_act: Condition, why: str, *source: str) -> Rule:
    """Build a rule; see `Rule` for the arguments."""
    return Rule(keys=keys, cannot_act=cannot_act, why=why, source=source)


def below(section: str, keys: str) -> frozenset[str]:
    """Return the dotted names of a section's keys, which are given as one text."""
    return frozenset(f"{section}.{key}" for key in keys.split())
