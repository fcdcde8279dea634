"""Builds DeepSpeed's ops on every node of a pool, before its first trial."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from autotune.errors import DispatchError, HardwareError
from autotune.pool.placement import SlotGroup

_POLL_S = 0.5
_CLASSES = {
    "fused_adam": "FusedAdam",
    "cpu_adam": "CPUAdam",
    "fused_lamb": "FusedLamb",
    "fused_lion": "FusedLion",
    "cpu_lion": "CPULion",
    "cpu_adagrad": "CPUAdagrad",
    "async_io": "async_io (NVMe)",
    "quantizer": "the quantizer (ZeRO++)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Builder:
    """The slot of a node that builds there."""

    slot: Any
    host: str


def build_on_every_node(
    groups: Sequence[SlotGroup], ops: Sequence[str], *, on_note: Callable[[str], None]
) -> None:
    """Have one slot of each node build the ops; returns at once where they are built already.

    Args:
        groups: the pool's groups.
        ops: DeepSpeed's names.
        on_note: called for each op that has to be compiled.

    Raises:
        HardwareError: an op cannot be built; the message has the compiler's last lines.
        DispatchError: a slot is gone.
    """
    waiting = _one_builder_a_node(groups)
    several = len(waiting) > 1
    try:
        ray.get([builder.slot.build_ops.remote(list(ops)) for builder in waiting])
        while waiting:
            answers = ray.get([builder.slot.poll_build.remote(_POLL_S) for builder in waiting])
            news = list(zip(waiting, answers, strict=True))
            for builder, answer in news:
                where = f"{builder.host}: " if several else ""
                for op in answer["building"]:
                    on_note(f"{where}building {_CLASSES[op]} (first use on this machine, a minute)")
                if answer["why"] is not None:
                    raise HardwareError(
                        f"{builder.host}: DeepSpeed's op {answer['why']}\n"
                        "`autotune doctor` checks the compilers"
                    )
            waiting = [builder for builder, answer in news if not answer["done"]]
    except ray.exceptions.RayError as error:
        raise DispatchError(f"building DeepSpeed's ops: a slot is gone: {error}") from error


def _one_builder_a_node(groups: Sequence[SlotGroup]) -> list[_Builder]:
    builders: dict[str, _Builder] = {}
    for group in groups:
        for node, slot, facts in zip(group.nodes, group.slots, group.facts, strict=True):
            builders.setdefault(node, _Builder(slot=slot, host=str(facts["host"])))
    return list(builders.values())
