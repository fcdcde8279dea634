"""Devices by the names that users, vendors and NVML give them; `--devices` adds more.

Memory is what the driver gives a process (`torch.cuda.get_device_properties`), which is less than
the vendor's number and differs by a few hundred MiB between driver versions: on a real device, the
driver's value is used. Speeds are the vendors' dense peaks.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from autotune.errors import HardwareError
from autotune.job.ceiling import parse_bytes

_SPEEDS = {
    "bf16_tflops": ("bf16_flops", 10**12),
    "fp16_tflops": ("fp16_flops", 10**12),
    "fp32_tflops": ("fp32_flops", 10**12),
    "memory_gb_per_s": ("memory_bytes_per_s", 10**9),
    "link_gb_per_s": ("link_bytes_per_s", 10**9),
    "host_gb_per_s": ("host_bytes_per_s", 10**9),
}
"""Keys of a devices file: the field that each fills, and its unit."""
_HOPPER_WORKSPACE_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Memory and speeds of an accelerator."""

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
    """Between nodes, in the usual machines with such devices."""
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
        """Read a device from an entry of a devices file; `devices.yaml` documents the keys.

        Args:
            mapping: `name`, `memory`, and optionally any other key of an entry.
            where: the file and the entry, for messages.

        Raises:
            HardwareError: keys missing, unknown or unreadable; all are named.
        """
        known = {"name", "memory", "workspace", "matmul_share", "network", "aliases", *_SPEEDS}
        faults = [
            f"{where}: {key}: unknown key; known keys: {', '.join(sorted(known))}"
            for key in sorted(set(mapping) - known, key=str)
        ]
        faults += [f"{where}: {k} is missing" for k in ("name", "memory") if k not in mapping]
        values: dict[str, Any] = {}
        for key, (name, unit) in _SPEEDS.items():
            value = mapping.get(key, 0)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                faults.append(f"{where}: {key}={value!r} must be a number, zero or more")
            else:
                values[name] = float(value) * unit
        share = mapping.get("matmul_share", 0.75)
        if not isinstance(share, int | float) or not 0 < share <= 1:
            faults.append(f"{where}: matmul_share={share!r} must be a number above 0, at most 1")
        if faults:
            raise HardwareError(*faults)
        for key in {"memory", "workspace"} & set(mapping):
            values[f"{key}_bytes"] = parse_bytes(str(mapping[key]), where=f"{where}: {key}")
        if "network" in mapping:
            values["network"] = str(mapping["network"])
        return cls(
            name=str(mapping["name"]),
            matmul_share=share,
            aliases=tuple(str(alias) for alias in mapping.get("aliases", ())),
            **values,
        )


@cache
def catalogue() -> tuple[Device, ...]:
    """Return the devices of `devices.yaml`, read on first use."""
    return load_devices(Path(__file__).with_name("devices.yaml"))


def find_device(name: str, *, extra: tuple[Device, ...] = (), where: str = "--gpu-type") -> Device:
    """Find a device by any of its names, ignoring case, spaces, dashes and the vendor.

    Args:
        name: `a100-80gb`, `A100-SXM4-80GB`, `NVIDIA A100-SXM4-80GB`, ...
        extra: devices that the user added; they precede the catalogue.
        where: the option that gave it, for messages.

    Raises:
        HardwareError: no such device; the nearest are named and the known ones listed.

    Example:
        >>> find_device("NVIDIA A100-SXM4-80GB").name
        'a100-80gb'
    """
    devices = (*extra, *catalogue())
    by_name: dict[str, Device] = {}
    for device in devices:
        for each in (device.name, *device.aliases):
            by_name.setdefault(_plain(each), device)
    wanted = _plain(name)
    if wanted in by_name:
        return by_name[wanted]
    near = dict.fromkeys(by_name[n].name for n in difflib.get_close_matches(wanted, by_name))
    raise HardwareError(
        f"{where} {name}: unknown device; "
        + (f"did you mean {' or '.join(near)}? " if near else "")
        + f"known: {', '.join(d.name for d in devices)}; add one with --devices FILE"
    )


def find_gpu(name: str, *, extra: tuple[Device, ...] = ()) -> Device:
    """Find the GPU of modelled ranks.

    Raises:
        HardwareError: an unknown device, or CPU ranks, which the models do not cover.
    """
    device = find_device(name, extra=extra)
    if device.name == "cpu":
        raise HardwareError(f"--gpu-type {name}: the models know GPUs; name one, such as h100-80gb")
    return device


def known_device(driver_name: str, *, memory_bytes: int) -> Device:
    """Return the catalogue's entry of a real device, with its real memory.

    A device that the catalogue lacks gets the speeds of an h100-80gb.

    Args:
        driver_name: NVML's name of it; `cpu` for CPU ranks.
        memory_bytes: as its driver reports it.
    """
    try:
        device = find_device(driver_name)
    except HardwareError:
        device = find_device("h100-80gb")
    return replace(device, memory_bytes=memory_bytes)


def load_devices(path: Path) -> tuple[Device, ...]:
    """Read devices from a YAML file in the form of `devices.yaml`; one entry needs no list.

    Raises:
        HardwareError: the file cannot be read, or an entry is wrong; every fault is named.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times faster
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
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
    """Remove the parts that differ between vendors' spellings."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    return re.sub(
        r"^(nvidia|tesla|amdinstinct|amd|geforce)+|sxm[0-9]?|hbm[0-9]e?|geforce", "", letters
    )
