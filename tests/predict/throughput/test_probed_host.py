"""A probe of a host, used with another number of ranks."""

from typing import Any

import pytest

from autotune.predict.links.probe_file import read_probe
from autotune.predict.throughput import SpeedSurroundings, predict_throughput
from autotune.predict.training_job import Training
from tests.predict.jobs import job
from tests.predict.rows import DATA, H200

AWAY = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
ADAM = {"elements_per_s": 2e9, "alone_elements_per_s": 3e9}
NVME = {"read_bytes_per_s": 2e9, "write_bytes_per_s": 1e9}
BUS = {"to_device_bytes_per_s": 3e10, "to_host_bytes_per_s": 2e10}


def _around(local_ranks: int, *, probed: int = 2, **parts: Any) -> SpeedSurroundings:
    """Surroundings by a probe of some ranks on one node."""
    probe = {"local_ranks": probed, "collectives": [], "cpu_adam": ADAM, "nvme": NVME} | parts
    return SpeedSurroundings.of(H200, local_ranks=local_ranks, probe=probe)


def _job(gpus: int) -> Training:
    return job(AWAY, model="7b", ranks=gpus)


@pytest.mark.parametrize(
    ("gpus", "adam", "nvme", "bus"),
    [(1, 3e9, 2e9, 4e10), (2, 2e9, 1e9, 2e10), (4, 1e9, 0.5e9, 1e10), (8, 0.5e9, 0.25e9, 5e9)],
)
def test_as_many_as_share_a_node_divide_what_the_probe_s_ranks_had(
    gpus: int, adam: float, nvme: float, bus: float
) -> None:
    around, training = _around(gpus, transfers=BUS), _job(gpus)
    assert around.adam_elements_per_s(training) == adam
    assert around.drive_bytes_per_s(training) == nvme
    assert around.to_host_bytes_per_s(training) == bus


def test_ranks_that_a_job_lacks_share_nothing() -> None:
    assert _around(8).adam_elements_per_s(_job(2)) == 2e9
    assert _around(8).adam_elements_per_s(_job(1)) == 3e9


def test_no_rank_gets_more_than_one_that_is_alone() -> None:
    assert _around(2, probed=8).adam_elements_per_s(_job(2)) == 3e9
    wide = {name: H200.host_bytes_per_s for name in BUS}
    assert _around(1, transfers=wide).to_host_bytes_per_s(_job(1)) == H200.host_bytes_per_s
    # Without a measured rate of its own, a rank alone has at least what it had beside others.
    fast = {"elements_per_s": 9e9}
    assert _around(1, cpu_adam=fast).adam_elements_per_s(_job(1)) == 9e9


@pytest.mark.parametrize(("probed", "gpus"), [("x2", 4), ("x4", 2)])
def test_h200_hosts_foretell_each_other_s_offloaded_steps(probed: str, gpus: int) -> None:
    """Within a quarter in the optimizer step; taken rank for rank they were 1.7 times off."""
    training = _job(gpus)
    other, own = (
        predict_throughput(
            training,
            SpeedSurroundings.of(
                H200, local_ranks=gpus, probe=read_probe(DATA / f"h200_{name}_probe.json")
            ),
        )
        for name in (probed, f"x{gpus}")
    )
    assert other.items["optimizer"] == pytest.approx(own.items["optimizer"], rel=0.25)


def test_a_host_is_known_where_as_many_share_it() -> None:
    def width(*, probed: int) -> float:
        predicted = predict_throughput(_job(4), _around(4, probed=probed))
        return predicted.tokens_per_s_high / predicted.tokens_per_s

    assert width(probed=4) < 0.8 * width(probed=2)
    assert width(probed=4) < 0.8 * width(probed=8)
