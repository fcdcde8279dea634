"""Every rule of the gate, for `--explain`, `--list-rules` and `--ignore`."""

import difflib
from collections.abc import Iterable, Mapping
from functools import cache

from autotune.errors import GateError
from autotune.lint.document.reading_rules import READING_RULES
from autotune.lint.rule_info import RuleInfo
from autotune.lint.rules import RULES

_NEAREST = 3


@cache
def all_rules() -> Mapping[str, RuleInfo]:
    """Return every rule by id, in the order in which they are applied."""
    # Imported here: half of the rules are about records and runs, which most calls do not use.
    from autotune.gating import accepted, deepspeed_parser
    from autotune.gating.baseline import compare, measure
    from autotune.gating.fit import memory, precision

    found: tuple[RuleInfo, ...] = (
        *READING_RULES,
        *RULES,
        *precision.RULE_INFOS,
        *memory.RULE_INFOS,
        *deepspeed_parser.RULE_INFOS,
        *compare.RULE_INFOS,
        *measure.RULE_INFOS,
        *accepted.RULE_INFOS,
    )
    by_id = {rule.id: rule for rule in found}
    assert len(by_id) == len(found), "two rules have one id"
    return by_id


def rule_or_raise(identifier: str, *, option: str) -> RuleInfo:
    """Return a rule.

    Raises:
        GateError: unknown rule; the message names the nearest.
    """
    require_rules([identifier], option=option)
    return all_rules()[identifier]


def require_rules(identifiers: Iterable[str], *, option: str) -> None:
    """Check that rules exist.

    Raises:
        GateError: unknown rules; the message names the nearest.
    """
    faults = [
        f"{option} {identifier}: no such rule; {_nearest(identifier)}"
        for identifier in sorted(identifiers)
        if identifier not in all_rules()
    ]
    if faults:
        raise GateError(*faults)


def _nearest(identifier: str) -> str:
    near = difflib.get_close_matches(identifier, all_rules(), n=_NEAREST, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return "autotune gate --list-rules lists them"
