"""What a probe's file must hold; the rest of it is read in tests/test_probe.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import HardwareError
from autotune.predict.links.probe_file import host_slowdown, read_probe

PROBE = {
    "format": 1,
    "device": "NVIDIA H200",
    "world_size": 2,
    "local_ranks": 2,
    "collectives": [],
}


def _written(tmp_path: Path, adam: dict[str, Any] | None) -> Path:
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(PROBE | {"cpu_adam": adam}))
    return path


@pytest.mark.parametrize("adam", [{}, {"num_threads": 4.0}, {"alone_elements_per_s": 3e9}], ids=str)
def test_a_cpu_adam_without_its_shared_rate_is_refused(
    tmp_path: Path, adam: dict[str, Any]
) -> None:
    path = _written(tmp_path, adam)
    with pytest.raises(HardwareError) as caught:
        read_probe(path)
    (fault,) = caught.value.faults
    assert fault == f"--probe {path}: cpu_adam={adam}: lacks elements_per_s; probe again"


@pytest.mark.parametrize(
    ("adam", "slowdown"),
    [
        (None, 1.0),
        ({"elements_per_s": 2e9}, 1.0),
        ({"elements_per_s": 2e9, "alone_elements_per_s": 3e9}, 1.5),
    ],
    ids=str,
)
def test_whatever_is_read_has_a_slowdown(
    tmp_path: Path, adam: dict[str, Any] | None, slowdown: float
) -> None:
    assert host_slowdown(read_probe(_written(tmp_path, adam))) == slowdown
