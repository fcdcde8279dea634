"""A probe's rows, from real gloo ranks."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from autotune.trial.device.cpu import CpuDevice
from autotune.trial.probe.run import probe
from autotune.trial.probe.spec import KINDS, ProbeSpec

PROGRAM = Path(__file__).with_name("probe_rank.py")
WORLD_SIZE = 3


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rows of each rank."""
    store = tmp_path_factory.mktemp("probe") / "store"
    ranks = [
        subprocess.Popen(
            [sys.executable, PROGRAM, str(rank), str(WORLD_SIZE), store],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD_SIZE)
    ]
    printed = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * WORLD_SIZE
    return [json.loads(text.splitlines()[-1]) for text in printed]


def test_every_kind_and_size_has_a_row_for_each_group_a_rank_is_in(
    probed: list[dict[str, Any]],
) -> None:
    for rank, groups in ((0, 2), (1, 2), (2, 1)):
        rows = probed[rank]["collectives"]
        assert len(rows) == groups * len(KINDS) * 2
        assert all(row["s"] > 0 for row in rows)
        assert all(rank in row["ranks"] for row in rows)


def test_bytes_are_those_of_the_whole(probed: list[dict[str, Any]]) -> None:
    sizes = {(len(row["ranks"]), row["num_bytes"]) for row in probed[0]["collectives"]}
    # bf16 in equal parts: three ranks cannot split 4096 bytes evenly.
    assert sizes == {(2, 4096), (2, 1 << 20), (3, 4092), (3, 1048572)}


def test_a_cpu_rank_has_cores_and_no_bus(probed: list[dict[str, Any]]) -> None:
    assert probed[1]["transfers"] is None
    assert probed[1]["nvme"] is None
    assert probed[1]["cpu_adam"]["elements_per_s"] > 0
    assert probed[1]["cpu_adam"]["num_threads"] == 1
    assert [("alone_elements_per_s" in rank["cpu_adam"]) for rank in probed] == [True, False, False]


def test_a_node_without_the_nvme_folder_fails_before_anything_is_timed() -> None:
    spec = ProbeSpec(
        label="probe", device_kind="cpu", num_threads=1, groups=((0, 1),), nvme_path="/nowhere"
    )
    device = CpuDevice(ceiling_bytes=1 << 40, num_threads=torch.get_num_threads())
    marks: list[str] = []
    with pytest.raises(NotADirectoryError, match="--nvme-path /nowhere: not a folder on this node"):
        probe(spec, rank=0, device=device, mark=marks.append)
    assert marks == ["DeepSpeed's io"]
