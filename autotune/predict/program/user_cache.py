"""What takes seconds to find out about a model, kept in the user's cache folder.

A cache never fails a prediction: what cannot be read is worked out again, and what cannot be
written is not kept.
"""

import contextlib
import gzip
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "AUTOTUNE_CACHE"
"""Names another folder than `autotune` in the user's cache folder."""
_MOST_FILES = 400
"""Of one kind; the oldest go first. A trace is about 50 kB."""


def read_cached(kind: str, key: Mapping[str, Any]) -> Any:
    """Return what was kept under a key; None where there is nothing, or nothing readable.

    Args:
        kind: of the value: a folder of the cache.
        key: everything that the value depends on, as JSON values.
    """
    try:
        content = json.loads(gzip.decompress(_path(kind, key).read_bytes()))
        # A file with another key is another value's, whatever its name says.
        return content["value"] if content["key"] == _normal(key) else None
    except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, RuntimeError):
        return None


def write_cached(kind: str, key: Mapping[str, Any], value: Any) -> None:
    """Keep a JSON value under a key; readers see the whole file or none.

    Args:
        kind: of the value: a folder of the cache.
        key: everything that the value depends on, as JSON values.
        value: a JSON value.
    """
    with contextlib.suppress(OSError, ValueError, TypeError, RuntimeError):
        path = _path(kind, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"key": _normal(key), "value": value}, separators=(",", ":"))
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(gzip.compress(text.encode(), compresslevel=3, mtime=0))
            os.replace(name, path)  # noqa: PTH105  the name is mkstemp's
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _drop_oldest(path.parent)


def _path(kind: str, key: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(_normal(key), sort_keys=True).encode()).hexdigest()
    return _folder() / kind / f"{digest[:40]}.json.gz"


def _folder() -> Path:
    if said := os.environ.get(FOLDER_VARIABLE):
        return Path(said)
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "autotune"


def _normal(key: Mapping[str, Any]) -> Any:
    """Return a key as it is after a turn through JSON."""
    return json.loads(json.dumps(key, sort_keys=True, default=str))


def _drop_oldest(folder: Path) -> None:
    files = sorted(folder.glob("*.json.gz"), key=lambda file: file.stat().st_mtime)
    for file in files[:-_MOST_FILES]:
        file.unlink(missing_ok=True)
