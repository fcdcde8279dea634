import csv
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from autotune.errors import HardwareError
from autotune.job.device import catalogue, find_device
from autotune.predict.links import networks as networks_module
from autotune.predict.links.communication import KINDS, Group, Links, collective_s
from autotune.predict.links.networks import find_network, networks
from autotune.predict.throughput.timeline import NCCL_CALL_S
from tests.predict.rows import DATA, H200

PROBED = DATA / "h200_x2_probe.json"
MEASURED = DATA / "h200_two_gpus_collectives.csv"
LINKS = Links.of_device(H200)
MIB = 2**20


def test_nvlink_between_two_h200_is_within_30_percent_and_5_in_the_middle() -> None:
    """What a probe of two found, from 64 KiB to 512 MiB."""
    rows = json.loads(PROBED.read_text("utf-8"))["collectives"]
    errors = [
        abs(collective_s(row["kind"], row["num_bytes"], Group(ranks=2), LINKS) / row["s"] - 1)
        for row in rows
    ]
    assert len(errors) == 35
    assert median(errors) <= 0.05
    assert max(errors) <= 0.30


def test_a_call_by_itself_takes_the_device_s_time_or_the_host_s() -> None:
    """Timed one at a time, small collectives took as long as the host needs to call them."""
    errors = []
    with MEASURED.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            size = int(row["output_bytes"])
            device_s = collective_s(row["collective"], size, Group(ranks=2), LINKS)
            errors.append(abs(max(device_s, NCCL_CALL_S) * 1e3 / float(row["ms"]) - 1))
    assert len(errors) == 12
    assert median(errors) <= 0.08
    assert max(errors) <= 0.14


@pytest.mark.parametrize("kind", KINDS)
def test_more_bytes_and_more_nodes_never_take_less(kind: str) -> None:
    for group in (Group(ranks=8), Group(ranks=64, nodes=8), Group(ranks=4096, nodes=512)):
        times = [collective_s(kind, size, group, LINKS) for size in (1, MIB, 64 * MIB, 2**32)]
        assert times == sorted(times)
        assert times[-1] > times[0] > 0
    over_nodes = [
        collective_s(kind, 2**30, Group.whole(n, local_ranks=8), LINKS) for n in (8, 64, 512, 4096)
    ]
    assert over_nodes == sorted(over_nodes)


def test_an_all_reduce_takes_about_a_reduce_scatter_and_an_all_gather() -> None:
    group = Group(ranks=8)
    whole = collective_s("all_reduce", 2**30, group, LINKS)
    halves = sum(collective_s(k, 2**30, group, LINKS) for k in ("reduce_scatter", "all_gather"))
    assert whole == pytest.approx(halves, rel=0.3)


def test_one_rank_sends_nothing() -> None:
    assert collective_s("all_reduce", 2**30, Group(ranks=1), LINKS) == 0


def test_a_slower_network_is_slower_between_nodes_only() -> None:
    names = ("ethernet-10g", "ethernet-100g", "ib-hdr-200", "ib-ndr-400")
    links = [Links.of_device(H200, network=name) for name in names]
    for group, same in ((Group(ranks=8), True), (Group(ranks=16, nodes=2), False)):
        times = [collective_s("all_gather", 2**30, group, each) for each in links]
        assert (len(set(times)) == 1) == same
        assert times == sorted(times, reverse=True)


def test_all_ranks_of_a_job_lie_on_whole_nodes() -> None:
    assert Group.whole(64, local_ranks=8) == Group(ranks=64, nodes=8)
    assert Group.whole(4, local_ranks=8) == Group(ranks=4)
    assert Group.of(range(8), local_ranks=8) == Group(ranks=8)


def test_an_unknown_collective_is_our_own_fault() -> None:
    with pytest.raises(ValueError, match="gossip is not a collective; known: all_gather,"):
        collective_s("gossip", 1, Group(ranks=2), LINKS)


@pytest.mark.parametrize("device", catalogue(), ids=lambda device: device.name)
def test_every_device_has_links(device: Any) -> None:
    links = Links.of_device(device)
    assert links.source == "catalogue"
    assert 0 < collective_s("all_reduce", MIB, Group(ranks=16, nodes=2), links) < 10


def test_ports_of_a_node_add_up() -> None:
    one, four = (find_network(name).node_bytes_per_s(8) for name in ("roce-100x1", "roce-100x4"))
    assert four == pytest.approx(4 * one)
    assert find_network("IB_NDR_400").node_bytes_per_s(8) == pytest.approx(340e9)


def test_an_unknown_network_lists_the_known_ones() -> None:
    with pytest.raises(HardwareError, match=r"--link token-ring: unknown network; known: ib-edr"):
        find_network("token-ring")


def test_an_unknown_network_names_the_nearest() -> None:
    with pytest.raises(HardwareError, match=r"unknown network; did you mean ib-ndr-400 or "):
        find_network("ib-nrd-400")


def test_no_name_stands_for_two_networks() -> None:
    text = Path(networks_module.__file__).with_suffix(".yaml").read_text()
    assert len(networks()) == text.count("- {name: ")


def _probe(**changes: Any) -> dict[str, Any]:
    rows = [
        {"kind": kind, "num_bytes": size, "ranks": ranks, "s": 1e-4 + scale * size / 100e9}
        for kind, scale in (("all_gather", 1.0), ("all_reduce", 2.0))
        for ranks in ([0, 1], [0, 1, 2, 3, 4, 5, 6, 7])
        for size in (MIB, 64 * MIB, 512 * MIB)
    ]
    return {"local_ranks": 8, "collectives": rows} | changes


def test_a_probe_s_points_come_back_and_between_them_a_line() -> None:
    links = Links.from_probe(_probe(), device=H200)
    assert links.source == "probe"
    for size in (MIB, 32 * MIB, 64 * MIB):
        expected = pytest.approx(1e-4 + size / 100e9)
        assert collective_s("all_gather", size, Group(ranks=2), links) == expected
    smallest = collective_s("all_gather", MIB, Group(ranks=2), links)
    assert collective_s("all_gather", 1, Group(ranks=2), links) == smallest


def test_above_a_probe_s_largest_size_it_goes_on_as_the_catalogue() -> None:
    links, group = Links.from_probe(_probe(), device=H200), Group(ranks=2)
    measured, usual = (
        [collective_s("all_gather", size * MIB, group, each) for size in (512, 1024)]
        for each in (links, LINKS)
    )
    assert measured[1] / measured[0] == pytest.approx(usual[1] / usual[0])
    assert measured[1] / measured[0] == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("host", ["x2", "x2_third_host"])
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
def test_small_sizes_do_not_determine_bandwidth(kind: str, host: str) -> None:
    """Up to 512 KiB a collective is mostly latency; its own rate there is a tenth of the link's."""
    whole = json.loads((DATA / f"h200_{host}_probe.json").read_text("utf-8"))
    small = [row for row in whole["collectives"] if row["num_bytes"] <= MIB // 2]
    assert small
    full, part = (
        Links.from_probe(whole | {"collectives": rows}, device=H200)
        for rows in (whole["collectives"], small)
    )
    for size in (8 * MIB, 64 * MIB, 512 * MIB):
        measured, continued = (collective_s(kind, size, Group(ranks=2), it) for it in (full, part))
        assert continued == pytest.approx(measured, rel=0.35)


def test_what_a_probe_lacks_is_scaled_from_what_it_has() -> None:
    slow = [row | {"s": 10 * row["s"]} for row in _probe()["collectives"]]
    links, slower = (
        Links.from_probe(probe, device=H200) for probe in (_probe(), _probe(collectives=slow))
    )
    for kind, group in (("reduce_scatter", Group(ranks=2)), ("all_gather", Group(ranks=4))):
        seconds = collective_s(kind, 64 * MIB, group, links)
        assert collective_s(kind, 64 * MIB, group, slower) == pytest.approx(10 * seconds)


def test_what_no_probe_crossed_is_the_catalogue_s() -> None:
    links = Links.from_probe(_probe(), device=H200, network="ethernet-10g")
    usual = Links.of_device(H200, network="ethernet-10g")
    group = Group(ranks=16, nodes=2)
    assert collective_s("all_gather", MIB, group, links) == collective_s(
        "all_gather", MIB, group, usual
    )


@pytest.mark.parametrize(
    "probe", [{}, {"local_ranks": 8, "collectives": [{"kind": "all_gather"}]}], ids=str
)
def test_a_file_that_is_not_a_probe_file_is_refused(probe: dict[str, Any]) -> None:
    with pytest.raises(HardwareError, match=r"pool\.json: not a probe file: .*autotune probe"):
        Links.from_probe(probe, device=H200, where="pool.json")


def test_it_is_importable_in_a_rank_without_torch() -> None:
    code = (
        "import sys; from autotune.predict.links.communication import collective_s; "
        "assert not {'torch', 'yaml', 'scipy', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_infiniband_cluster_beats_a_pcie_box() -> None:
    l4 = Links.of_device(find_device("l4"))
    assert collective_s("all_gather", 2**30, Group(ranks=8), l4) > collective_s(
        "all_gather", 2**30, Group(ranks=16, nodes=2), LINKS
    )
