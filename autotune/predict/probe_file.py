"""The file that `autotune probe` writes."""

import json
from pathlib import Path
from typing import Any

from autotune.errors import HardwareError

FORMAT = 1


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
