"""Keys that cannot act."""

from collections.abc import Iterator, Mapping
from typing import Any

from autotune import dotted
from autotune.ds_config.inert import inert_keys
from autotune.ds_config.spelling import is_superseded
from autotune.fields.table import field_of
from autotune.lint.finding import Fix, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.shown import shown
from autotune.lint.subject import Subject

_OFFLOAD_PARAM = "zero_optimization.offload_param"


@rule("cannot-act", Severity.NOTE)
def cannot_act(subject: Subject) -> Iterator[Fault]:
    """A key is there and cannot act: the run is the same without it.

    Most are left over from another stage: `stage3_*` and `sub_group_size` below ZeRO 3,
    `allgather_bucket_size` at stage 3, everything but the stage at stage 0. `autotune` holds a list
    read in DeepSpeed's source, key by key (`autotune/ds_config/inert_zero.py`). The rest of a block
    that is switched off, by `"enabled": false` or `"device": "none"`, is not told: that is how such
    blocks are written.

    Harmless, so a note. `offload_param` with a device is a warning below stage 3: who writes it
    expects parameters to leave the GPU, and they do not (`runtime/engine.py:
    _configure_zero_optimizer`).
    """
    told: set[str] = set()
    reasons = inert_keys(subject.flat, world_size=subject.launch.data_parallel)
    for key, why in reasons.items():
        field = field_of(key)
        # Old names and names given twice are other rules' faults.
        if (field is not None and field.deprecated) or is_superseded(key, subject.flat):
            continue
        if _is_switched_off(subject.config, key):
            continue
        path = _OFFLOAD_PARAM if key.startswith(f"{_OFFLOAD_PARAM}.") else key
        if path in told:
            continue
        told.add(path)
        value = dotted.get(subject.config, path)
        yield Fault(
            field=path,
            message=f"{path}={shown(value)}: cannot act: {why}",
            suggestion=f"remove {path.rpartition('.')[2]}",
            fix=Fix(drop=frozenset({path})),
            severity=Severity.WARNING if _moves_parameters(path, value) else None,
        )


RULES = (cannot_act,)


def _is_switched_off(config: Mapping[str, Any], key: str) -> bool:
    section = key.rpartition(".")[0]
    block = dotted.get(config, section)
    if not section or not isinstance(block, Mapping):
        return False
    return block.get("enabled", True) in (False, "auto") or block.get("device") == "none"


def _moves_parameters(path: str, value: Any) -> bool:
    if path != _OFFLOAD_PARAM or not isinstance(value, Mapping):
        return False
    return value.get("device") in ("cpu", "nvme")
