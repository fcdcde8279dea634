"""The file that `autotune probe` writes."""

import json
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from autotune.errors import HardwareError
from autotune.job.device import find_device
from autotune.predict.links.communication import KINDS

FORMAT = 1
_MOST_FAULTS = 5


def host_slowdown(probed: Mapping[str, Any]) -> float:
    """Return how much longer CPUAdam takes with all ranks of a node at once than alone.

    1 where the probe did not measure it.

    Example:
        >>> host_slowdown({"cpu_adam": {"alone_elements_per_s": 3e9, "elements_per_s": 2e9}})
        1.5
    """
    adam = probed.get("cpu_adam") or {}
    alone = adam.get("alone_elements_per_s")
    return max(alone / adam["elements_per_s"], 1.0) if alone else 1.0


def read_probe(path: Path) -> dict[str, Any]:
    """Read what a probe measured.

    Raises:
        HardwareError: it is no such file, of another version, or damaged; the first faults
            are named.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise HardwareError(f"--probe {path}: no such file; autotune probe writes one") from error
    except (OSError, ValueError) as error:
        raise HardwareError(f"--probe {path}: not readable: {error}") from error
    if not isinstance(found, dict) or not {"format", "collectives"} <= found.keys():
        raise HardwareError(f"--probe {path}: is no probe; autotune probe writes one")
    if found["format"] != FORMAT:
        raise HardwareError(
            f"--probe {path}: format {found['format']}: this autotune reads {FORMAT}; probe again"
        )
    if faults := list(islice(_faults(found), _MOST_FAULTS)):
        raise HardwareError(*(f"--probe {path}: {fault}; probe again" for fault in faults))
    return found


def check_device(probed: Mapping[str, Any], device_name: str, *, where: str) -> None:
    """Refuse a probe of another device than the job's.

    Devices that the catalogue does not know are not compared.

    Args:
        probed: as `read_probe` returns it.
        device_name: of the catalogue, or as its driver calls it.
        where: the option, for the message.

    Raises:
        HardwareError: both are known, and not the same.
    """
    try:
        measured, wanted = (find_device(name).name for name in (probed["device"], device_name))
    except HardwareError:
        return
    if measured != wanted:
        raise HardwareError(
            f"{where}: measured on {measured}, and the job runs on {wanted}; probe the pool that "
            "it runs on"
        )


def _faults(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a probe."""
    if not isinstance(found.get("device"), str):
        yield f"device={found.get('device')!r}: must be the name of one"
    world_size: Any = found.get("world_size")
    if not _is_count(world_size):
        yield f"world_size={world_size!r}: must be a whole number of at least 1"
        return
    local_ranks: Any = found.get("local_ranks")
    if not _is_count(local_ranks) or local_ranks > world_size:
        yield f"local_ranks={local_ranks!r}: must be a whole number from 1 to {world_size}"
    rows = found["collectives"]
    if not isinstance(rows, list):
        yield f"collectives={rows!r}: must be a list"
        return
    for number, row in enumerate(rows):
        for fault in _row_faults(row, world_size):
            yield f"collectives[{number}]: {fault}"
    for part, needed in (("transfers", ()), ("cpu_adam", ("elements_per_s",)), ("nvme", ())):
        yield from _rate_faults(part, found.get(part), needed=needed)


def _rate_faults(part: str, rates: Any, *, needed: tuple[str, ...]) -> Iterator[str]:
    if rates is None:
        return
    if not isinstance(rates, dict):
        yield f"{part}={rates!r}: must be an object, or null where it was not measured"
        return
    for name, rate in rates.items():
        if not _is_positive(rate):
            yield f"{part}.{name}={rate!r}: must be a number above 0"
    for name in needed:
        if name not in rates:
            yield f"{part}={rates!r}: lacks {name}"


def _row_faults(row: Any, world_size: int) -> Iterator[str]:
    if not isinstance(row, dict):
        yield f"{row!r}: must be an object"
        return
    kind, num_bytes, s = (row.get(key) for key in ("kind", "num_bytes", "s"))
    ranks: Any = row.get("ranks")
    if kind not in KINDS:
        yield f"kind={kind!r}: must be one of {', '.join(KINDS)}"
    if not _is_count(num_bytes):
        yield f"num_bytes={num_bytes!r}: must be a whole number of at least 1"
    known = isinstance(ranks, list) and all(rank in range(world_size) for rank in ranks)
    if not known or not 2 <= len(ranks) == len(set(ranks)):
        yield f"ranks={ranks!r}: must be at least two different ones, from 0 to {world_size - 1}"
    if not _is_positive(s):
        yield f"s={s!r}: must be a number of seconds above 0"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_positive(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value > 0
