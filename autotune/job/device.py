"""Devices by the names that people, vendors and NVML use for them, and a way to add one.

Memory is what the driver gives a process (`torch.cuda.get_device_properties`), which is less than
the number on the box and differs by a few hundred MiB between driver versions: on the machine
itself, what its driver says counts. Speeds are the vendors' dense peaks.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from autotune.errors import HardwareError
from autotune.job.ceiling import GIB, parse_bytes

_TERA, _GIGA = 10**12, 10**9
_HOPPER_WORKSPACE_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator, as far as memory and speed are concerned."""

    name: str
    memory_bytes: int
    """What the driver gives a process."""
    bf16_flops: float
    """Dense peak, operations a second; 0 where the device has no bf16 units."""
    fp16_flops: float
    fp32_flops: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    """To a neighbour in the same node, one direction."""
    host_bytes_per_s: float
    """To host memory, one direction."""
    workspace_bytes: int = 8_519_680
    """One cuBLAS workspace: 32 MiB from Hopper on, 8.1 MiB before (torch's defaults)."""
    matmul_share: float = 0.75
    """Of the dense peak, in the best of large matrix products: the Maximum Achievable Matmul FLOPS
    of Stas Bekman's ml-engineering where it lists the device, else that of its generation."""
    network: str = "ethernet-100g"
    """Between nodes, in machines as they are sold with such devices."""
    aliases: tuple[str, ...] = ()
    """Other names, as vendors and NVML print them."""

    @property
    def is_hopper(self) -> bool:
        """Whether it is of NVIDIA's Hopper generation or newer."""
        return self.workspace_bytes == _HOPPER_WORKSPACE_BYTES

    def flops(self, precision: str) -> float:
        """Return the peak for bf16, fp16 or fp32; bf16 without units runs as fp32."""
        peaks = {"bf16": self.bf16_flops, "fp16": self.fp16_flops, "fp32": self.fp32_flops}
        return peaks[precision] or self.fp32_flops

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, where: str) -> Self:
        """Read a device out of a YAML mapping.

        Args:
            mapping: `name`, `memory` (such as `79.2GiB`), and optionally `bf16_tflops`,
                `fp16_tflops`, `fp32_tflops`, `memory_gb_per_s`, `link_gb_per_s`,
                `host_gb_per_s`, `matmul_share` (0.75), `network`, `aliases`.
            where: the file, for messages.

        Raises:
            HardwareError: keys missing, unknown or unreadable; all are named.
        """
        speeds = {
            "bf16_tflops": ("bf16_flops", _TERA),
            "fp16_tflops": ("fp16_flops", _TERA),
            "fp32_tflops": ("fp32_flops", _TERA),
            "memory_gb_per_s": ("memory_bytes_per_s", _GIGA),
            "link_gb_per_s": ("link_bytes_per_s", _GIGA),
            "host_gb_per_s": ("host_bytes_per_s", _GIGA),
        }
        known = {"name", "memory", "matmul_share", "network", "aliases", *speeds}
        faults = [
            f"{where}: {key} is no key of a device; known keys: {', '.join(sorted(known))}"
            for key in sorted(set(mapping) - known)
        ]
        faults += [f"{where}: {k} is missing" for k in ("name", "memory") if k not in mapping]
        values: dict[str, Any] = {}
        for key, (name, unit) in speeds.items():
            value = mapping.get(key, 0)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                faults.append(f"{where}: {key}={value!r} must be a number, zero or more")
            else:
                values[name] = value * unit
        share = mapping.get("matmul_share", 0.75)
        if not isinstance(share, int | float) or not 0 < share <= 1:
            faults.append(f"{where}: matmul_share={share!r} must be a number above 0, at most 1")
        if faults:
            raise HardwareError(*faults)
        return cls(
            name=str(mapping["name"]),
            matmul_share=share,
            network=str(mapping.get("network", "ethernet-100g")),
            memory_bytes=parse_bytes(str(mapping["memory"]), where=f"{where}: memory"),
            aliases=tuple(str(alias) for alias in mapping.get("aliases", ())),
            **values,
        )


def _device(
    name: str,
    gib: float,
    speeds: str,
    *aliases: str,
    hopper: bool = False,
    matmul_share: float = 0.75,
    network: str = "ethernet-100g",
) -> Device:
    """Return a catalogue entry.

    Args:
        name: the short name, such as `a100-80gb`.
        gib: memory in GiB.
        speeds: bf16, fp16, fp32 (TFLOP/s), memory, link, host (GB/s), separated by spaces.
        aliases: other names.
        hopper: Hopper or newer.
        matmul_share: see `Device`.
        network: see `Device`.
    """
    bf16, fp16, fp32, memory, link, host = (float(value) for value in speeds.split())
    return Device(
        name=name,
        memory_bytes=int(gib * GIB),
        bf16_flops=bf16 * _TERA,
        fp16_flops=fp16 * _TERA,
        fp32_flops=fp32 * _TERA,
        memory_bytes_per_s=memory * _GIGA,
        link_bytes_per_s=link * _GIGA,
        host_bytes_per_s=host * _GIGA,
        workspace_bytes=_HOPPER_WORKSPACE_BYTES if hopper else 8_519_680,
        matmul_share=matmul_share,
        network=network,
        aliases=aliases,
    )


CATALOGUE: tuple[Device, ...] = (
    _device(
        "v100-16gb",
        15.78,
        "0 125 15.7 900 150 16",
        "Tesla V100-SXM2-16GB",
        "V100",
        network="ib-edr-100",
    ),
    _device(
        "v100-32gb",
        31.74,
        "0 125 15.7 900 150 16",
        "Tesla V100-SXM2-32GB",
        "V100-SXM3-32GB",
        network="ib-edr-100",
    ),
    _device("t4", 14.56, "0 65 8.1 320 16 16", "Tesla T4", "T4-16GB"),
    _device("titan-rtx", 23.64, "0 130 16.3 672 16 16", "NVIDIA TITAN RTX", "TITAN RTX-24GB"),
    _device(
        "a100-40gb",
        39.39,
        "312 312 19.5 1555 300 32",
        "NVIDIA A100-SXM4-40GB",
        "NVIDIA A100-PCIE-40GB",
        matmul_share=0.87,
        network="ib-hdr-200",
    ),
    _device(
        "a100-80gb",
        79.15,
        "312 312 19.5 2039 300 32",
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA A100 80GB PCIe",
        "A100",
        matmul_share=0.87,
        network="ib-hdr-200",
    ),
    _device(
        "h100-80gb",
        79.11,
        "989 989 67 3350 450 64",
        "NVIDIA H100 80GB HBM3",
        "H100-SXM5-80GB",
        "H100 SXM",
        "H100",
        hopper=True,
        matmul_share=0.80,
        network="ib-ndr-400",
    ),
    _device(
        "h100-pcie",
        79.11,
        "756 756 51 2000 64 64",
        "NVIDIA H100 PCIe",
        hopper=True,
        matmul_share=0.80,
        network="ib-hdr-200",
    ),
    _device(
        "h200",
        139.8,
        "989 989 67 4800 450 64",
        "NVIDIA H200",
        "H200-141GB",
        "H200 SXM",
        hopper=True,
        matmul_share=0.80,
        network="ib-ndr-400",
    ),
    _device(
        "b200",
        178.35,
        "2250 2250 80 8000 900 64",
        "NVIDIA B200",
        "B200-180GB",
        "B200-192GB",
        hopper=True,
        matmul_share=0.78,
        network="ib-ndr-400",
    ),
    _device("h20", 95.58, "148 148 44 4000 450 64", "NVIDIA H20", "H20-96GB", hopper=True),
    _device("h800-80gb", 79.11, "989 989 67 3350 200 64", "NVIDIA H800", "H800", hopper=True),
    _device("gh200-96gb", 95.0, "989 989 67 4000 450 450", "GH200", "NVIDIA GH200", hopper=True),
    _device("a800-80gb", 79.15, "312 312 19.5 2039 200 32", "NVIDIA A800-SXM4-80GB", "A800"),
    _device("a40", 44.99, "150 150 37.4 696 56 32", "NVIDIA A40", "A40-48GB"),
    _device("a30", 23.69, "165 165 10.3 933 100 32", "NVIDIA A30", "A30-24GB"),
    _device("a6000", 47.54, "155 155 38.7 768 56 32", "NVIDIA RTX A6000", "RTX A6000-48GB"),
    _device("a5000", 23.68, "111 111 27.8 768 56 32", "NVIDIA RTX A5000", "RTX A5000-24GB"),
    _device("rtx-6000-ada", 47.99, "364 364 91 960 32 32", "NVIDIA RTX 6000 Ada Generation"),
    _device("rtx-2080-ti", 10.76, "0 54 13.4 616 16 16", "NVIDIA GeForce RTX 2080 Ti", "2080 Ti"),
    _device("p100-16gb", 15.9, "0 21.2 10.6 732 80 16", "Tesla P100-SXM2-16GB", "P100"),
    _device("l4", 22.03, "121 121 30.3 300 32 32", "NVIDIA L4", "L4-24GB"),
    _device("l40s", 44.39, "362 362 91.6 864 32 32", "NVIDIA L40S", "L40S-48GB"),
    _device("a10", 22.06, "125 125 31.2 600 32 32", "NVIDIA A10", "NVIDIA A10G", "A10-24GB"),
    _device(
        "rtx-3090",
        23.57,
        "71 71 35.6 936 32 32",
        "NVIDIA GeForce RTX 3090",
        "3090",
        "RTX 3090-24GB",
    ),
    _device(
        "rtx-4090",
        23.52,
        "165 165 82.6 1008 32 32",
        "NVIDIA GeForce RTX 4090",
        "4090",
        "RTX 4090-24GB",
    ),
    _device(
        "mi250",
        63.98,
        "181 181 22.6 1638 100 32",
        "AMD Instinct MI250",
        "AMD Instinct MI250X",
        "MI250X",
        matmul_share=0.77,
        network="ib-hdr-200",
    ),
    _device(
        "mi300x",
        191.69,
        "1307 1307 163 5300 448 64",
        "AMD Instinct MI300X",
        "MI300X-192GB",
        matmul_share=0.60,
        network="ib-ndr-400",
    ),
    _device("cpu", 16.0, "0 0 0.5 50 10 50", "CPU ranks"),
)
"""A MI250 is two devices of 64 GB each to its driver; `cpu` is a rank with 16 GiB."""


def find_device(name: str, *, extra: tuple[Device, ...] = (), where: str = "--gpu-type") -> Device:
    """Find a device by any of its names; case, spaces, dashes and the vendor do not matter.

    Args:
        name: `a100-80gb`, `A100-SXM4-80GB`, `NVIDIA A100-SXM4-80GB`, ...
        extra: devices that the user added; they go before the catalogue.
        where: the option that said it, for messages.

    Raises:
        HardwareError: no such device; the known ones are listed.

    Example:
        >>> find_device("NVIDIA A100-SXM4-80GB").name
        'a100-80gb'
    """
    wanted = _plain(name)
    devices = (*extra, *CATALOGUE)
    for device in devices:
        if wanted in {_plain(n) for n in (device.name, *device.aliases)}:
            return device
    raise HardwareError(
        f"{where} {name}: unknown device; known: {', '.join(d.name for d in devices)}; "
        "add one with --devices FILE"
    )


def find_gpu(name: str, *, extra: tuple[Device, ...] = ()) -> Device:
    """Find what ranks that nobody runs are on: the models' words are for GPUs.

    Raises:
        HardwareError: unknown, or CPU ranks.
    """
    device = find_device(name, extra=extra)
    if device.name == "cpu":
        raise HardwareError(f"--gpu-type {name}: the models know GPUs; name one, such as h100-80gb")
    return device


def known_device(driver_name: str, *, memory_bytes: int) -> Device:
    """Return what the catalogue says of a device that is really there, with its real memory.

    One that the catalogue does not know counts as the newest kind it knows.

    Args:
        driver_name: what NVML calls it; `cpu` for CPU ranks.
        memory_bytes: as its driver reports it.
    """
    try:
        device = find_device(driver_name)
    except HardwareError:
        device = find_device("h100-80gb")
    return replace(device, memory_bytes=memory_bytes)


def load_devices(path: Path) -> tuple[Device, ...]:
    """Read devices from a YAML file: a list of mappings, or one mapping.

    Raises:
        HardwareError: the file cannot be read, or an entry is wrong; every fault is named.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise HardwareError(f"{path}: not readable as YAML: {error}") from error
    entries = content if isinstance(content, list) else [content]
    faults: list[str] = []
    devices: list[Device] = []
    for number, entry in enumerate(entries, start=1):
        where = f"{path}: device {number}"
        if not isinstance(entry, dict):
            faults.append(f"{where}: must be a mapping with name and memory, not {entry!r}")
            continue
        try:
            devices.append(Device.from_mapping(entry, where=where))
        except HardwareError as error:
            faults += error.faults
    if faults:
        raise HardwareError(*faults)
    return tuple(devices)


def _plain(name: str) -> str:
    """Strip what differs between vendors' spellings."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    return re.sub(
        r"^(nvidia|tesla|amdinstinct|amd|geforce)+|sxm[0-9]?|hbm[0-9]e?|geforce", "", letters
    )
