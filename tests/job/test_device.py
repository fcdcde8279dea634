from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import HardwareError
from autotune.job.ceiling import GIB
from autotune.job.device import catalogue, find_device, load_devices


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a100-80gb", "a100-80gb"),
        ("A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("h100", "h100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA B200", "b200"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("RTX 4090", "rtx-4090"),
        ("NVIDIA TITAN RTX", "titan-rtx"),
        ("AMD Instinct MI250X", "mi250"),
        ("MI300X", "mi300x"),
        ("NVIDIA H20", "h20"),
        ("H800", "h800-80gb"),
        ("A800", "a800-80gb"),
        ("NVIDIA A40", "a40"),
        ("RTX A6000", "a6000"),
        ("2080Ti", "rtx-2080-ti"),
        ("Tesla P100", "p100-16gb"),
        ("cpu", "cpu"),
    ],
)
def test_vendors_and_drivers_names_find_the_device(name: str, expected: str) -> None:
    assert find_device(name).name == expected


def test_no_name_stands_for_two_devices() -> None:
    names = [name for device in catalogue() for name in (device.name, *device.aliases)]
    for name in names:
        owners = [d.name for d in catalogue() if name in (d.name, *d.aliases)]
        assert [find_device(name).name] == owners


def test_memory_is_less_than_on_the_box_and_near_it() -> None:
    for name, gigabytes in (("a100-80gb", 80), ("h200", 141), ("t4", 16), ("mi300x", 192)):
        memory = find_device(name).memory_bytes
        assert 0.88 * gigabytes * GIB < memory < gigabytes * GIB


def test_an_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(HardwareError, match=r"--gpu-type g80: unknown device; known: v100-16gb,"):
        find_device("g80")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("NVIDIA A100-SXM4-8OGB", "a100-80gb or "),
        ("mi3000x", "mi300x"),
        ("acme-x2", r"mine\? known: mine, v100"),
    ],
)
def test_an_unknown_device_names_the_nearest(name: str, nearest: str) -> None:
    mine = replace(find_device("l4"), name="mine", aliases=("ACME X1",))
    with pytest.raises(HardwareError, match=f"{name}: unknown device; did you mean {nearest}"):
        find_device(name, extra=(mine,))


def test_bf16_without_units_runs_as_fp32() -> None:
    device = find_device("v100-16gb")
    assert device.flops("bf16") == device.flops("fp32") < device.flops("fp16")


def test_a_device_is_added_by_a_file(tmp_path: Path) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text(
        "- name: mine\n  memory: 48GiB\n  bf16_tflops: 100\n  aliases: [ACME X1]\n"
        "  workspace: 32MiB\n"
        "- {name: a100-80gb, memory: 64GiB}\n"
    )
    extra = load_devices(file)
    assert find_device("acme x1", extra=extra).memory_bytes == 48 * GIB
    assert find_device("acme x1", extra=extra).flops("bf16") == 1e14
    assert find_device("acme x1", extra=extra).is_hopper
    assert not find_device("a100-80gb", extra=extra).is_hopper
    # The user's own goes before the catalogue's.
    assert find_device("a100-80gb", extra=extra).memory_bytes == 64 * GIB


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("- 7\n", ["device 1: must be a mapping"]),
        ("- {memory: 4GiB}\n", ["name is missing"]),
        (
            "- {name: a}\n- {name: b, memory: 4GiB, watts: 3}\n",
            ["memory is missing", "watts: unknown key"],
        ),
        ("- {name: a, memory: 4GiB, bf16_tflops: fast}\n", ["bf16_tflops='fast' must be a number"]),
        (
            "- {name: a, memory: 4GiB, matmul_share: 2}\n",
            ["matmul_share=2 must be a number above 0"],
        ),
        ("- {name: a, memory: 4GiB, workspace: big}\n", ["device 1: workspace 'big': not a size"]),
        ("- {name: a, memory: 40}\n", [r"memory 40: GB \(1000\^3 bytes\) or GiB"]),
        ("{{", ["not readable as YAML"]),
    ],
)
def test_a_wrong_file_names_every_fault(tmp_path: Path, text: str, faults: list[str]) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text(text)
    with pytest.raises(HardwareError, match=faults[0]) as raised:
        load_devices(file)
    assert len(raised.value.faults) == len(faults)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match="nowhere"):
        load_devices(tmp_path / "nowhere.yaml")
