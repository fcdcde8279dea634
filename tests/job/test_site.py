"""Where a job runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import HardwareError
from autotune.job.ceiling import GIB
from autotune.job.device import find_device
from autotune.job.job import Job
from autotune.job.site import ranks_per_node, resolve_site, size_bytes

H100 = find_device("h100-80gb")


def test_nothing_is_known_of_an_empty_job() -> None:
    site = resolve_site(Job())
    assert (site.gpus, site.ranks_per_node, site.device, site.limit_bytes) == (None,) * 4
    assert not site.ceiling_is_given


def test_the_default_ceiling_is_a_rule_of_thumb_and_the_limit_is_the_device() -> None:
    site = resolve_site(Job(gpu_type="h100-80gb"))
    assert site.ceiling_bytes == int(H100.memory_bytes * 0.9)
    assert site.limit_bytes == H100.memory_bytes


@pytest.mark.parametrize(
    ("ceiling", "limit_bytes"), [("72GiB", 72 * GIB), ("50%", H100.memory_bytes // 2)]
)
def test_a_given_ceiling_is_the_limit(ceiling: str, limit_bytes: int) -> None:
    site = resolve_site(Job(gpu_type="h100-80gb", memory_ceiling=ceiling))
    assert site.ceiling_is_given
    assert site.limit_bytes == site.ceiling_bytes == limit_bytes


@pytest.mark.parametrize(
    ("job", "ranks"),
    [
        (Job(), None),
        (Job(gpus=4), 4),
        (Job(gpus=64), 8),
        (Job(gpus=64, nodes=16), 4),
        (Job(gpus=64, gpus_per_node=16), 16),
        (Job(nodes=2), None),
    ],
)
def test_ranks_of_a_node(job: Job, ranks: int | None) -> None:
    assert ranks_per_node(job) == ranks


@given(gpus=st.integers(1, 4_096))
def test_a_node_never_has_more_ranks_than_the_job(gpus: int) -> None:
    ranks = ranks_per_node(Job(gpus=gpus))
    assert ranks is not None
    assert 1 <= ranks <= min(gpus, 8)


def test_a_device_sold_in_several_sizes_is_the_one_with_that_memory() -> None:
    device = resolve_site(Job(gpu_type="a100", gpu_memory="40")).device
    assert device == find_device("a100-40gb")
    box = resolve_site(Job(gpu_type="a100", gpu_memory="80")).device
    assert box is not None
    assert box.memory_bytes == find_device("a100-80gb").memory_bytes


def test_memory_alone_describes_a_device() -> None:
    device = resolve_site(Job(gpu_memory="48")).device
    assert device is not None
    assert (device.name, device.memory_bytes) == ("GPU", 48 * GIB)
    named = resolve_site(Job(gpu_type="acme-x1", gpu_memory="48GiB")).device
    assert named is not None
    assert (named.name, named.memory_bytes) == ("acme-x1", 48 * GIB)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Job(gpu_type="acme-x1"), r"--gpu-type acme-x1: unknown device; .*, or give its --gpu-mem"),
        (Job(gpu_memory="lots"), r"--gpu-memory 'lots': "),
        (Job(host_memory="0"), r"--host-memory 0"),
        (Job(memory_ceiling="abc%"), r"--memory-ceiling 'abc%': "),
        (Job(memory_ceiling="80"), r"--memory-ceiling 80: "),
        (Job(memory_ceiling="101%"), r"--memory-ceiling 101%: is above the whole device"),
        (Job(gpu_type="h100-80gb", memory_ceiling="90GiB"), r"is above the device's 79\.\d+ GiB"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(job: Job, message: str) -> None:
    with pytest.raises(HardwareError, match=message) as raised:
        resolve_site(job)
    assert raised.value.exit_code == 2


def test_a_number_alone_is_gib() -> None:
    assert size_bytes(" 512 ", where="--host-memory") == 512 * GIB
    assert size_bytes("512GB", where="--host-memory") == 512 * 10**9


def test_the_same_site_with_more_devices_keeps_its_nodes() -> None:
    site = resolve_site(Job(gpus=16, gpus_per_node=4))
    assert site.with_gpus(64, ranks_per_node=4).ranks_per_node == 4
    assert site.with_gpus(2, ranks_per_node=4).ranks_per_node == 2
