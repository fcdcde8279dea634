"""Slot groups: N one-device bundles of a Ray placement group, packed on a node where N fit."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from autotune.errors import DispatchError, HardwareError
from autotune.pool.slot import Slot
from autotune.trial.spec import Place

_PLACEMENT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotGroup:
    """The slots of one trial at a time, in rank order."""

    slots: tuple[Any, ...]
    """Ray actor handles of `autotune.pool.slot.Slot`."""
    nodes: tuple[str, ...]
    """Ray's node id of each slot."""
    master_addr: str
    """Where rank 0 opens the rendezvous."""
    visible_devices: tuple[str, ...]
    """CUDA_VISIBLE_DEVICES of each slot; empty strings on CPU slots."""
    facts: tuple[dict[str, Any], ...]
    """What each slot reported (`Slot.describe`)."""

    def place(self, rank: int, *, master_port: int) -> Place:
        """Return the place of a rank; ranks of a node are contiguous."""
        here = [r for r, node in enumerate(self.nodes) if node == self.nodes[rank]]
        return Place(
            rank=rank,
            world_size=len(self.slots),
            local_rank=here.index(rank),
            local_world_size=len(here),
            master_addr=self.master_addr,
            master_port=master_port,
            visible_devices=",".join(self.visible_devices[r] for r in here).strip(","),
        )


def num_devices(device_kind: str) -> int:
    """Return the number of devices of a kind in the cluster."""
    return int(ray.cluster_resources().get(_resource(device_kind), 0))


def reserve_groups(group_size: int, *, num_groups: int, device_kind: str) -> list[PlacementGroup]:
    """Reserve placement groups of `group_size` bundles.

    Raises:
        HardwareError: no group can be placed, for example because other jobs hold the devices.
    """
    bundle = {"CPU": 1.0} | ({"GPU": 1.0} if device_kind == "cuda" else {})
    groups = [placement_group([bundle] * group_size, strategy="PACK") for _ in range(num_groups)]
    ray.wait([group.ready() for group in groups], num_returns=num_groups, timeout=_PLACEMENT_S)
    placed = [g for g in groups if placement_group_table(g)["state"] == "CREATED"]
    for group in groups:
        if group not in placed:
            ray.util.remove_placement_group(group)
    if not placed:
        raise HardwareError(
            f"Ray placed no group of {group_size} {device_kind} devices within "
            f"{_PLACEMENT_S:.0f} s; other jobs may hold them (see `ray status`)"
        )
    return placed


def open_group(group: PlacementGroup, *, device_kind: str, model_type: str) -> SlotGroup:
    """Start a slot per bundle; the preloaded parents continue to load in the background.

    Raises:
        DispatchError: a slot did not start.
    """
    table = placement_group_table(group)
    bundle_nodes: dict[int, str] = table["bundles_to_node_id"]
    # Ranks of a node are contiguous, as with DeepSpeed's launcher.
    order = sorted(bundle_nodes, key=lambda index: (bundle_nodes[index], index))
    nodes = tuple(bundle_nodes[index] for index in order)
    actor = ray.remote(num_cpus=1, num_gpus=1 if device_kind == "cuda" else 0)(Slot)
    slots = tuple(
        actor.options(
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_bundle_index=index
            )
        ).remote(device_kind, model_type)
        for index in order
    )
    try:
        facts = tuple(ray.get([slot.describe.remote() for slot in slots]))
    except ray.exceptions.RayError as error:
        raise DispatchError(f"a slot did not start: {error}") from error
    addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    one_node = len(Counter(nodes)) == 1
    return SlotGroup(
        slots=slots,
        nodes=nodes,
        master_addr="127.0.0.1" if one_node else addresses[nodes[0]],
        visible_devices=tuple(fact["visible_devices"] for fact in facts),
        facts=facts,
    )


def _resource(device_kind: str) -> str:
    return "GPU" if device_kind == "cuda" else "CPU"
