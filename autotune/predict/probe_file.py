"""The file that `autotune probe` writes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import HardwareError

FORMAT = 1


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
        HardwareError: it is no such file, or of another version.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise HardwareError(f"--probe {path}: no such file; autotune probe writes one") from error
    except (OSError, ValueError) as error:
        raise HardwareError(f"--probe {path}: not readable: {error}") from error
    written = found.get("format") if isinstance(found, dict) else None
    if written != FORMAT:
        raise HardwareError(
            f"--probe {path}: format {written}: this autotune reads {FORMAT}; probe again"
        )
    return dict(found)
