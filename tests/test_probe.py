"""What a probe's ranks say, as one file; and files that are none."""

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import HardwareError
from autotune.job.device import find_device
from autotune.predict.links.communication import Group, Links, collective_s
from autotune.predict.links.probe_file import check_device, host_slowdown, read_probe
from autotune.probe import combine, groups_of
from tests import rank_processes
from tests.cli.calls import autotune, autotune_here, tree
from tests.doctor.installations import installation, op

DATA = Path(__file__).parent / "data"


def rank(number: int, s: float, **parts: Any) -> dict[str, Any]:
    row = {"kind": "all_gather", "num_bytes": 1024, "ranks": [0, 1], "s": s}
    return {"rank": number, "collectives": [row], "transfers": None, "nvme": None, **parts}


def test_a_collective_takes_as_long_as_its_slowest_rank() -> None:
    adam = {"elements_per_s": 2e9, "alone_elements_per_s": 3e9, "num_threads": 4.0}
    found = combine(
        [
            rank(0, 1e-3, cpu_adam=adam, transfers={"to_host_bytes_per_s": 5.0}),
            rank(1, 2e-3, cpu_adam={"elements_per_s": 1e9, "num_threads": 4.0}),
        ],
        nodes=["a", "a"],
    )
    assert found == {
        "world_size": 2,
        "local_ranks": 2,
        "collectives": [{"kind": "all_gather", "num_bytes": 1024, "ranks": [0, 1], "s": 2e-3}],
        "transfers": {"to_host_bytes_per_s": 5.0},
        "cpu_adam": {"elements_per_s": 1e9, "alone_elements_per_s": 3e9, "num_threads": 4.0},
        "nvme": None,
    }
    assert host_slowdown(found) == 3.0


@pytest.mark.parametrize(
    ("nodes", "groups"),
    [
        ("aa", [(0, 1)]),
        ("aaaa", [(0, 1), (0, 1, 2, 3)]),
        ("aabb", [(0, 1), (0, 2), (0, 1, 2, 3)]),
        ("ab", [(0, 1)]),
        ("a", []),
    ],
)
def test_groups_lie_within_a_node_across_nodes_and_over_all(
    nodes: str, groups: list[tuple[int, ...]]
) -> None:
    assert list(groups_of(list(nodes))) == groups


@pytest.mark.parametrize("cards", [2, 4])
def test_measured_probes_say_what_a_collective_takes(cards: int) -> None:
    path = DATA / f"h200_x{cards}_probe.json"
    links = Links.from_probe(read_probe(path), device=find_device("h200"), where=str(path))
    assert links.source == "probe"
    group = Group(ranks=cards)
    rows = [r for r in read_probe(path)["collectives"] if len(r["ranks"]) == cards]
    assert rows
    for row in rows:
        assert collective_s(row["kind"], row["num_bytes"], group, links) == row["s"]
    back = Links.from_json(json.loads(json.dumps(links.to_json())))
    assert back == links
    assert back.curves == links.curves


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "is no probe; autotune probe writes one"),
        ("[]", "is no probe"),
        ("{", "not readable"),
        ('{"format": 2, "collectives": []}', "format 2: this autotune reads 1; probe again"),
    ],
)
def test_a_file_that_is_no_probe_is_said_to_be_none(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "probe.json"
    path.write_text(text)
    with pytest.raises(HardwareError, match=rf"--probe {path}: {says}"):
        read_probe(path)
    with pytest.raises(HardwareError, match="no such file; autotune probe writes one"):
        read_probe(tmp_path / "nowhere.json")


ROW = {"kind": "all_gather", "num_bytes": 8, "ranks": [0, 1], "s": 1e-5}
PROBE = {
    "format": 1,
    "device": "NVIDIA H200",
    "world_size": 2,
    "local_ranks": 2,
    "collectives": [ROW],
    "transfers": None,
    "cpu_adam": {"elements_per_s": 1e9, "num_threads": 4.0},
}


def _written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(PROBE | changes))
    return path


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"device": None}, "device=None: must be the name of one"),
        ({"world_size": 0}, "world_size=0: must be a whole number of at least 1"),
        ({"local_ranks": 0}, "local_ranks=0: must be a whole number from 1 to 2"),
        ({"local_ranks": 3}, "local_ranks=3: must be a whole number from 1 to 2"),
        ({"collectives": {}}, "collectives={}: must be a list"),
        ({"collectives": [3]}, "collectives[0]: 3: must be an object"),
        ({"collectives": [ROW | {"kind": "foo"}]}, "kind='foo': must be one of all_gather,"),
        ({"collectives": [ROW | {"num_bytes": -5}]}, "num_bytes=-5: must be a whole number"),
        ({"collectives": [ROW | {"num_bytes": True}]}, "num_bytes=True: must be a whole number"),
        ({"collectives": [ROW | {"ranks": []}]}, "ranks=[]: must be at least two different"),
        ({"collectives": [ROW | {"ranks": None}]}, "ranks=None: must be at least two different"),
        ({"collectives": [ROW | {"ranks": [0, 0]}]}, "ranks=[0, 0]: must be at least two"),
        ({"collectives": [ROW | {"ranks": [0, 9]}]}, "different ones, from 0 to 1"),
        ({"collectives": [ROW, ROW | {"s": 0}]}, "collectives[1]: s=0: must be a number of sec"),
        ({"collectives": [ROW | {"s": math.nan}]}, "s=nan: must be a number of seconds above 0"),
        ({"collectives": [ROW | {"s": "1"}]}, "s='1': must be a number of seconds above 0"),
        ({"cpu_adam": "x"}, "cpu_adam='x': must be an object, or null"),
        ({"nvme": {"read_bytes_per_s": -1}}, "nvme.read_bytes_per_s=-1: must be a number above 0"),
    ],
)
def test_a_damaged_probe_says_where(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    path = _written(tmp_path, **changes)
    with pytest.raises(HardwareError) as caught:
        read_probe(path)
    (fault,) = caught.value.faults
    assert fault.startswith(f"--probe {path}: ")
    assert says in fault
    assert fault.endswith("; probe again")


def test_a_sound_probe_is_read_and_of_a_broken_one_five_faults_are_told(tmp_path: Path) -> None:
    assert read_probe(_written(tmp_path)) == PROBE
    with pytest.raises(HardwareError) as caught:
        read_probe(_written(tmp_path, collectives=[ROW | {"s": -1}] * 9))
    assert len(caught.value.faults) == 5


@pytest.mark.parametrize("name", ["h200", "NVIDIA H200", "a device that nobody knows"])
def test_a_probe_is_for_its_own_device(name: str) -> None:
    check_device(PROBE, name, where="--probe p.json")


@pytest.mark.parametrize(("measured", "name"), [("NVIDIA H200", "h100-80gb"), ("cpu", "h200")])
def test_a_probe_of_another_device_is_refused(measured: str, name: str) -> None:
    with pytest.raises(HardwareError, match=f"--probe p.json: measured on .*runs on {name}; "):
        check_device(PROBE | {"device": measured}, name, where="--probe p.json")


def test_what_cannot_be_probed_costs_no_ten_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = autotune_here(
        "probe", "--gpus", "2", "--output", str(tmp_path / "no" / "probe.json"), capsys=capsys
    )
    assert call.faults == [f"--output {tmp_path}/no/probe.json: there is no folder {tmp_path}/no"]
    (fault,) = autotune_here("probe", "--gpus", "99", "--device", "cpu", capsys=capsys).faults
    assert fault.startswith("--gpus 99: this machine has ")
    assert "CPU slots; each rank needs one; choices: --gpus " in fault
    assert "--evaluator" not in fault


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--device", "tpu"], "--device tpu: must be cuda or cpu"),
        (["--output", "."], "--output .: is a folder; name a file, such as probe.json"),
        (
            ["--output", "/proc/probe.json"],
            "--output /proc/probe.json: no file can be written there: No such file or directory; "
            "name another",
        ),
        (
            ["--nvme-path", "nowhere"],
            "--nvme-path nowhere: not a folder; create one on the NVMe drive, or leave the option "
            "out",
        ),
        (
            ["--nvme-path", "a-file"],
            "--nvme-path a-file: not a folder; create one on the NVMe drive, or leave the option "
            "out",
        ),
        (
            ["--nvme-path", "/proc"],
            "--nvme-path /proc: not writable: No such file or directory; name another folder, "
            "or leave the option out",
        ),
        (
            ["--nvme-path", "."],
            "--nvme-path .: DeepSpeed's op async_io: libaio's headers are missing; only offload "
            "to NVMe needs them; apt install libaio-dev, or leave the option out",
        ),
    ],
)
def test_what_would_fail_after_all_else_was_measured_is_refused_first(
    options: list[str],
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("mine", encoding="utf-8")
    lacking = installation(ops=(op("async_io", why="no io_submit"),))
    monkeypatch.setattr("autotune.probe.ask_installation", lambda *_, **__: lacking)
    monkeypatch.setattr("autotune.probe.Pool", None)
    call = autotune_here("probe", "--gpus", "2", "--device", "cpu", *options, capsys=capsys)
    assert call.faults == [fault]
    assert tree(tmp_path) == {"a-file": b"mine"}


def test_every_fault_of_a_probe_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    call = autotune_here(
        *("probe", "--gpus", "2", "--device", "tpu", "--output", "/", "--nvme-path", "/no"),
        capsys=capsys,
    )
    assert [fault.partition(":")[0] for fault in call.faults] == [
        "--device tpu",
        "--output /",
        "--nvme-path /no",
    ]


@pytest.mark.ray
def test_real_ranks_are_probed(tmp_path: Path) -> None:
    call = autotune(
        "probe", "--gpus", "2", "--device", "cpu", "--json", cwd=tmp_path, timeout_s=240
    )
    assert call.code == 0, call.err
    told = json.loads(call.out)
    assert told == read_probe(tmp_path / "probe.json")
    assert told["world_size"] == told["local_ranks"] == 2
    assert {tuple(row["ranks"]) for row in told["collectives"]} == {(0, 1)}
    assert told["cpu_adam"]["elements_per_s"] > 0
    assert host_slowdown(told) >= 1


@pytest.mark.ray
def test_a_sigterm_ends_a_probe_and_its_pool(tmp_path: Path) -> None:
    probing = subprocess.Popen(
        [
            *(sys.executable, "-m", "autotune.cli.main"),
            *("probe", "--gpus", "2", "--device", "cpu"),
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    mark: list[str] = []

    def has_ranks() -> bool:
        assert probing.poll() is None
        if not mark and (found := rank_processes.mark_of(probing.pid)):
            mark.append(found)
        return bool(mark) and bool(rank_processes.forks(mark[0]))

    rank_processes.wait_until(has_ranks, timeout_s=120, what="its ranks live")
    probing.send_signal(signal.SIGTERM)
    _, said = probing.communicate(timeout=30)
    assert probing.returncode == 130, said
    assert "Traceback" not in said
    rank_processes.wait_until_none(lambda: rank_processes.marked_processes(mark[0]), timeout_s=10)
    assert not (tmp_path / "probe.json").exists()
