import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from autotune.pool.tenancy import Tenancy, Tenant

ONE_NODE = [frozenset({"a"}), frozenset({"a"})]
TWO_NODES = [frozenset({"a"}), frozenset({"b"})]
_WAIT_S = 0.15


def in_thread(tenancy: Tenancy, number: int, *, alone: bool = False) -> "Future[Tenant]":
    """Acquire in a thread of its own, after all that were called before."""
    future: Future[Tenant] = Future()

    def acquire() -> None:
        future.set_result(tenancy.acquire(number, alone=alone))

    # A daemon: a test that fails must not wait for a group that is never released.
    threading.Thread(target=acquire, daemon=True).start()
    time.sleep(0.02)
    return future


def _waits(future: "Future[Tenant]") -> bool:
    time.sleep(_WAIT_S)
    return not future.done()


def test_trials_get_groups_of_their_own() -> None:
    tenancy = Tenancy(ONE_NODE)
    assert {tenancy.acquire(n, alone=False).group for n in (1, 2)} == {0, 1}


def test_a_trial_waits_for_a_group_to_be_given_back() -> None:
    tenancy = Tenancy([frozenset({"a"})])
    first = tenancy.acquire(1, alone=False)
    second = in_thread(tenancy, 2)
    assert _waits(second)
    tenancy.release(first)
    assert second.result(timeout=1).group == first.group


def test_neighbours_are_noted_on_both_sides_and_stay_noted() -> None:
    tenancy = Tenancy(ONE_NODE)
    first, second = tenancy.acquire(1, alone=False), tenancy.acquire(2, alone=False)
    tenancy.release(second)
    third = tenancy.acquire(3, alone=False)
    assert first.neighbours == {2, 3}
    assert second.neighbours == {1}
    assert third.neighbours == {1}


def test_trials_on_other_nodes_are_not_neighbours() -> None:
    tenancy = Tenancy(TWO_NODES)
    first, second = tenancy.acquire(1, alone=True), tenancy.acquire(2, alone=True)
    assert not first.neighbours
    assert not second.neighbours


def test_a_spread_group_neighbours_both_its_nodes() -> None:
    tenancy = Tenancy([frozenset({"a"}), frozenset({"b"}), frozenset({"a", "b"})])
    tenants = [tenancy.acquire(n, alone=False) for n in (1, 2, 3)]
    assert [tenant.neighbours for tenant in tenants] == [{3}, {3}, {1, 2}]


def test_a_trial_that_must_be_alone_waits_for_its_neighbours() -> None:
    tenancy = Tenancy(ONE_NODE)
    first = tenancy.acquire(1, alone=False)
    alone = in_thread(tenancy, 2, alone=True)
    assert _waits(alone)
    tenancy.release(first)
    assert not alone.result(timeout=1).neighbours


def test_no_trial_comes_beside_one_that_must_be_alone() -> None:
    tenancy = Tenancy(ONE_NODE)
    alone = tenancy.acquire(1, alone=True)
    next_one = in_thread(tenancy, 2)
    assert _waits(next_one)
    tenancy.release(alone)
    assert not next_one.result(timeout=1).neighbours
    assert not alone.neighbours


def test_groups_are_handed_out_first_come_first_served() -> None:
    tenancy = Tenancy([frozenset({"a"})])
    tenant = tenancy.acquire(0, alone=False)
    waiting = [in_thread(tenancy, n) for n in range(1, 6)]
    for future in waiting:
        assert not future.done()
        tenancy.release(tenant)
        tenant = future.result(timeout=1)


def test_a_trial_that_must_be_alone_is_not_overtaken_for_ever() -> None:
    tenancy = Tenancy(ONE_NODE)
    first, second = tenancy.acquire(1, alone=False), tenancy.acquire(2, alone=False)
    alone = in_thread(tenancy, 3, alone=True)
    later = in_thread(tenancy, 4)
    tenancy.release(first)
    # A group is free, but the one that was here first needs the node.
    assert _waits(alone)
    assert not later.done()
    tenancy.release(second)
    tenancy.release(alone.result(timeout=1))
    assert later.result(timeout=1).number == 4


def test_many_trials_at_once_never_break_the_rules() -> None:
    tenancy = Tenancy([frozenset({"a"}), frozenset({"a"}), frozenset({"b"})])
    lock = threading.Lock()
    running: dict[int, tuple[Tenant, bool]] = {}
    faults: list[str] = []

    def live(number: int) -> None:
        alone = number % 3 == 0
        tenant = tenancy.acquire(number, alone=alone)
        with lock:
            for other, other_alone in running.values():
                same_node = {tenant.group, other.group} <= {0, 1}
                if other.group == tenant.group or (same_node and (alone or other_alone)):
                    faults.append(f"{number} beside {other.number}")
            running[number] = tenant, alone
        time.sleep(0.002)
        with lock:
            del running[number]
        tenancy.release(tenant)

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(live, range(90), timeout=30))
    assert not faults
