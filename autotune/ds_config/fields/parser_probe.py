"""Finds the kinds of values that a DeepSpeed parser refuses in a field, by trying them."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from autotune import dotted
from autotune.ds_config.fields.kind import PROBES, Kind

LIMIT = "limit"
"""Listed with the refused kinds where the parser checks a field's limits."""

# A kind is refused if it is refused with all of these: a refusal with only some of them depends on
# the combination of fields, not on a field's type.
_SETTINGS: tuple[Mapping[str, Any], ...] = (
    {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}},
    {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}},
)
_SAMPLING = "data_efficiency.data_sampling"
_COMPANIONS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    f"{_SAMPLING}.curriculum_learning.enabled": (
        {f"{_SAMPLING}.curriculum_learning.curriculum_metrics": {"seqlen": {}}},
    ),
    f"{_SAMPLING}.dynamic_batching.enabled": ({f"{_SAMPLING}.dynamic_batching.max_tokens": 8},),
    "train_micro_batch_size_per_gpu": ({}, {"train_batch_size": 8}),
    "optimizer.params": ({"optimizer.type": "Adam"},),
    "scheduler.params": ({"scheduler.type": "WarmupLR"},),
}
"""What a config needs so that a key is read, or without a refusal of another key; one of
several."""
_MACHINE = frozenset({"aio.use_gds"})
"""Refused where the machine lacks a device, whatever the value."""


def refused_kinds(
    key: str, record: Mapping[str, Any], accepts: Callable[[dict[str, Any]], bool]
) -> list[str]:
    """Return the refused kinds of values of a field, and `limit` if its limits are checked.

    Args:
        key: the field's dotted name.
        record: the field as the table has it so far: bounds and choices.
        accepts: whether the parser accepts a config.
    """

    def refused(*values: Any) -> bool:
        return not any(
            # The parser writes into sections.
            accepts(deepcopy(dotted.updated(setting, {**companions, key: value})))
            for value in values
            for setting in _SETTINGS
            for companions in _COMPANIONS.get(key, ({},))
        )

    if key in _MACHINE:
        return []
    kinds = [kind.value for kind in Kind if refused(*PROBES[kind])]
    outside = _outside(record)
    return kinds + ([LIMIT] if outside is not None and refused(outside) else [])


def _outside(record: Mapping[str, Any]) -> Any:
    """Return a value outside a field's limits; None if it has none."""
    if record.get("choices"):
        return "autotune" if isinstance(record["choices"][0], str) else -7
    for bound, step in (("minimum", -1), ("above", 0), ("maximum", 1), ("below", 0)):
        if bound in record:
            return record[bound] + step
    return None
