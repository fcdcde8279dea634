"""A trial spread over two nodes, which here are two raylets of one machine with a CPU each."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from autotune.errors import DispatchError
from autotune.pool.pool import Pool, PoolRequest
from autotune.study.outcome import Phase
from autotune.trial.spec import StepRule, TrialSpec

pytestmark = pytest.mark.ray

_ENDLESS = StepRule(min_steps=10_000, max_steps=10_000, max_s=1e6)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    try:
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def pool(cluster: Any) -> Iterator[Pool]:
    request = PoolRequest(
        world_size=2, device_kind="cpu", model_type="llama", ray_address=cluster.address
    )
    with Pool(request) as pool:
        yield pool


def test_a_spread_trial_completes_and_each_rank_is_the_first_of_its_node(
    pool: Pool, make_spec: Callable[..., TrialSpec]
) -> None:
    (group,) = pool.groups
    assert len(set(group.nodes)) == 2
    places = [group.place(rank, master_port=1) for rank in (0, 1)]
    assert [place.rank for place in places] == [0, 1]
    assert [(place.local_rank, place.local_world_size) for place in places] == [(0, 1), (0, 1)]
    spec = make_spec({"zero_optimization.stage": 2})
    run = pool.run(spec, number=1, alone=False, on_mark=lambda *_: None)
    assert all(report.measurement for report in run.reports), run.reports


def test_a_node_that_dies_in_mid_trial_ends_the_run_in_bounded_time(
    pool: Pool, cluster: Any, make_spec: Callable[..., TrialSpec]
) -> None:
    # The last test of this cluster.
    killed_at: list[float] = []

    def on_mark(_label: str, _rank: int, phase: Phase, _where: str) -> None:
        if phase is Phase.STEADY and not killed_at:
            killed_at.append(time.monotonic())
            (worker,) = cluster.worker_nodes
            cluster.remove_node(worker, allow_graceful=False)

    with pytest.raises(DispatchError, match="trial: a slot is gone"):
        pool.run(
            make_spec({"zero_optimization.stage": 2}, steps=_ENDLESS),
            number=2,
            alone=False,
            on_mark=on_mark,
        )
    assert time.monotonic() - killed_at[0] < 30
