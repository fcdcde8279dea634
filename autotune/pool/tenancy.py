"""Which slot groups are free, which trials share a node, and which must run alone. Without Ray."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tenant:
    """A trial that holds a slot group."""

    number: int
    group: int
    neighbours: set[int] = field(default_factory=set)
    """Trials that held a group on the same node at any time since this one started."""


class Tenancy:
    """Hands out slot groups, first come, first served.

    Args:
        nodes_of_groups: per group, the nodes that its slots are on.
    """

    def __init__(self, nodes_of_groups: Sequence[frozenset[str]]) -> None:
        self._nodes = nodes_of_groups
        self._tenants: dict[int, Tenant] = {}
        self._alone: set[int] = set()
        self._changed = threading.Condition()
        self._next_ticket = self._now_serving = 0

    def acquire(self, number: int, *, alone: bool) -> Tenant:
        """Wait for a group.

        Args:
            number: the trial's.
            alone: wait until no other trial runs on the group's nodes, and admit none.
        """
        with self._changed:
            ticket = self._next_ticket
            self._next_ticket += 1
            # In order: else trials that must run alone would wait forever.
            self._changed.wait_for(lambda: ticket == self._now_serving)
            self._changed.wait_for(lambda: self._choose(alone=alone) is not None)
            group = self._choose(alone=alone)
            assert group is not None
            self._now_serving += 1
            tenant = Tenant(number=number, group=group)
            for other in self._neighbours(group):
                tenant.neighbours.add(other.number)
                other.neighbours.add(number)
            self._tenants[group] = tenant
            if alone:
                self._alone.add(group)
            self._changed.notify_all()
            return tenant

    def release(self, tenant: Tenant) -> None:
        """Return a group."""
        with self._changed:
            del self._tenants[tenant.group]
            self._alone.discard(tenant.group)
            self._changed.notify_all()

    def _choose(self, *, alone: bool) -> int | None:
        for group in range(len(self._nodes)):
            if group in self._tenants:
                continue
            beside = self._neighbours(group)
            if any(other.group in self._alone for other in beside) or (alone and beside):
                continue
            return group
        return None

    def _neighbours(self, group: int) -> list[Tenant]:
        return [t for t in self._tenants.values() if self._nodes[t.group] & self._nodes[group]]
