"""Keys of a ds_config that are present and cannot act.

"Cannot act" means: with the rest of the config unchanged, every value that DeepSpeed accepts leads
to the same training run: the same computation, memory and communication. A value that DeepSpeed
refuses is never inert: leaving it out would turn a run that dies into one that works. Keys that act
outside the training steps (checkpoints, logs) do act. Effects of a key in a model that calls
DeepSpeed itself (mixture of experts, `deepspeed.checkpointing`) are not judged here, and neither is
DeepCompile.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from autotune.ds_config.facts import Facts, UnknownFactError
from autotune.ds_config.fields.kind import kind_of
from autotune.ds_config.fields.table import Field, field_of
from autotune.ds_config.inert_rule import Rule
from autotune.ds_config.inert_sections import SECTION_RULES
from autotune.ds_config.inert_zero import ZERO_RULES
from autotune.ds_config.key_aliases import current_key, documented, is_superseded

RULES = (*ZERO_RULES, *SECTION_RULES)


def inert_keys(
    flat: Mapping[str, Any], *, world_size: int | None = None, partial: bool = False
) -> dict[str, str]:
    """Return each key that is present but cannot act, with the reason.

    Args:
        flat: a ds_config flattened to dotted keys, in any spelling that DeepSpeed accepts.
        world_size: data-parallel ranks; None if unknown, which skips the rules that depend on it.
        partial: `flat` is a part of a config, such as a proposal: a key counts as inert only if the
        part determines it. Else a missing key has DeepSpeed's default.

    Example:
        >>> inert_keys({"zero_optimization.stage": 1, "zero_optimization.sub_group_size": 1000})
        {'zero_optimization.sub_group_size': 'only ZeRO stage 3 reads it'}
    """
    facts = Facts(flat=documented(flat), world_size=world_size, partial=partial)
    reasons = {key: _reason(key, flat, facts) for key in flat}
    return {key: reason for key, reason in reasons.items() if reason is not None}


def _reason(key: str, flat: Mapping[str, Any], facts: Facts) -> str | None:
    name = current_key(key)
    field = field_of(key)
    if field is not None and flat[key] != "auto" and _is_refused(field, flat[key]):
        return None  # in any section
    if is_superseded(key, flat):
        return f"DeepSpeed uses {name if name in flat else 'the bf16 section'} instead"
    for rule in _rules_about(name):
        try:
            if rule.cannot_act(facts, flat[key]):
                return rule.why
        except UnknownFactError:
            continue
    return None


def _is_refused(field: Field, value: Any) -> bool:
    if field.limit_fault(value):
        return True
    return not field.choices and kind_of(value).value in field.refuses


@lru_cache(maxsize=4096)
def _rules_about(name: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if rule.covers(name))
