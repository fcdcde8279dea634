"""Keys that cannot act."""

from collections.abc import Iterator, Mapping
from typing import Any

from autotune import dotted
from autotune.ds_config.fields.table import field_of
from autotune.ds_config.inert import inert_keys
from autotune.ds_config.key_aliases import is_superseded
from autotune.lint.finding import Fix, Severity
from autotune.lint.format_value import format_value
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_OFFLOAD_PARAM = "zero_optimization.offload_param"
_ZEROPP = ("zero_optimization.zero_hpz_", "zero_optimization.zero_quantized_")


@rule("cannot-act", Severity.NOTE)
def cannot_act(subject: Subject) -> Iterator[Fault]:
    """A key has no effect: the run is the same without it.

    Most are left over from another stage: `stage3_*` and `sub_group_size` below ZeRO 3,
    `allgather_bucket_size` at stage 3, everything but the stage at stage 0. The list was read in
    DeepSpeed's source, key by key (`autotune/ds_config/inert_zero.py`). The other keys of a block
    that is switched off, by `"enabled": false` or `"device": "none"`, are not reported: such blocks
    are usually written this way.

    Harmless, so a note. Where an effect was clearly expected, as with `offload_param` or ZeRO++
    below stage 3, another rule warns.

    Suggestion: remove it.
    """
    together: dict[tuple[str, str], list[str]] = {}
    for key, why in inert_keys(subject.flat, world_size=subject.launch.data_parallel).items():
        if _has_other_rule(subject, key) or _is_switched_off(subject.config, key):
            continue
        section = key.rpartition(".")[0]
        together.setdefault((section, why), []).append(key)
    for (_, why), keys in together.items():
        yield _fault(subject, keys, why)


RULES = (cannot_act,)


def _fault(subject: Subject, keys: list[str], why: str) -> Fault:
    """Return one fault for keys of a section that cannot act for the same reason."""
    first, *others = keys
    value = dotted.get(subject.config, first)
    leaves = [key.rpartition(".")[2] for key in keys]
    likewise = f"; likewise {', '.join(leaves[1:])}" if others else ""
    return Fault(
        field=first,
        message=f"{first}={format_value(value)}: cannot act: {why}{likewise}",
        suggestion=f"remove {', '.join(leaves)}",
        fix=Fix(drop=frozenset(keys)),
    )


def _has_other_rule(subject: Subject, key: str) -> bool:
    """Whether another rule reports the key: an old name, a duplicate, an expected effect."""
    field = field_of(key)
    if (field is not None and field.deprecated) or is_superseded(key, subject.flat):
        return True
    is_asked_for = field is not None and subject.flat[key] != field.default
    return key.startswith(f"{_OFFLOAD_PARAM}.") or (key.startswith(_ZEROPP) and is_asked_for)


def _is_switched_off(config: Mapping[str, Any], key: str) -> bool:
    section = key.rpartition(".")[0]
    block = dotted.get(config, section)
    if not section or not isinstance(block, Mapping):
        return False
    return block.get("enabled", True) in (False, "auto") or block.get("device") == "none"
