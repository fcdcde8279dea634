"""Selects the table of fields for the installed DeepSpeed.

Tables are shipped for the versions that the project supports. For any other installed version a
table is made from its source, once, and kept in the user's cache.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_PREFIX = "fields_deepspeed_"
_FORMAT = 1
"""Of the tables in the cache; raise it when `make_table` writes other records."""
_LONGEST_S = 120
"""Time limit for making a table; it takes a few seconds on a local disk."""


class TableSource(StrEnum):
    """Where a table comes from."""

    SHIPPED = "shipped"
    MADE = "made"
    """From the installed DeepSpeed, into the cache."""
    NEAREST = "nearest"
    """Of another version than the installed one: none could be made."""
    NEWEST = "newest"
    """Of the newest shipped version: DeepSpeed is not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """The selected table."""

    installed: str | None
    """DeepSpeed's version; None if it is not installed."""
    table: str
    """The version of the fields."""
    how: TableSource
    path: Path

    @property
    def description(self) -> str:
        """Description of the table for a reader.

        Example:
            >>> TableVersion(
            ...     installed="9.0.0", table="0.19.8", how=TableSource.NEAREST, path=Path("x")
            ... ).description
            'table of fields of 0.19.8; 9.0.0 is installed, and none could be made from it'
        """
        match self.how:
            case TableSource.SHIPPED:
                return "table of fields"
            case TableSource.MADE:
                return "table of fields made from the installed DeepSpeed"
            case TableSource.NEAREST:
                return (
                    f"table of fields of {self.table}; {self.installed} is installed, and none "
                    "could be made from it"
                )
            case TableSource.NEWEST:
                return f"table of fields of {self.table}; DeepSpeed is not installed"


@cache
def table_version() -> TableVersion:
    """Return the table of the installed DeepSpeed, made if necessary, else the nearest one."""
    shipped = {
        _version(file.name.removeprefix(_PREFIX).removesuffix(".json")): file.name
        for file in resources.files(__package__).iterdir()
        if file.name.startswith(_PREFIX)
    }
    try:
        installed = metadata.version("deepspeed").split("+")[0]
    except metadata.PackageNotFoundError:
        return _shipped(shipped[max(shipped)], installed=None, how=TableSource.NEWEST)
    wanted = _version(installed)
    if wanted in shipped:
        return _shipped(shipped[wanted], installed=installed, how=TableSource.SHIPPED)
    made = _made(installed)
    if made is not None:
        return TableVersion(installed=installed, table=installed, how=TableSource.MADE, path=made)
    # The newest table that is not newer than DeepSpeed, else the oldest one.
    not_newer = [version for version in shipped if version <= wanted]
    nearest = shipped[max(not_newer) if not_newer else min(shipped)]
    return _shipped(nearest, installed=installed, how=TableSource.NEAREST)


def read_table() -> Mapping[str, Any]:
    """Return the table: version, and fields by dotted name."""
    return json.loads(table_version().path.read_text("utf-8"))  # type: ignore[no-any-return]


def cache_folder() -> Path:
    """Return the folder of made tables, in the user's cache; it need not exist."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "autotune" / f"fields-{_FORMAT}"


def _shipped(name: str, *, installed: str | None, how: TableSource) -> TableVersion:
    return TableVersion(
        installed=installed,
        table=name.removeprefix(_PREFIX).removesuffix(".json"),
        how=how,
        path=Path(str(resources.files(__package__).joinpath(name))),
    )


def _made(installed: str) -> Path | None:
    """Return the cached table of the installed DeepSpeed, made now if there is none.

    A version from which none can be made is recorded, so that it is not tried again; remove the
    file `.failed` from the cache to retry.
    """
    folder = cache_folder()
    path = folder / f"{_PREFIX}{installed}.json"
    failed = folder / f"{_PREFIX}{installed}.failed"
    if path.exists():
        return path
    if failed.exists():
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as made_in:
            reason = _make_table(Path(made_in))
            made = Path(made_in) / path.name
            if reason is None and made.exists():
                made.replace(path)  # atomic: another process may make it too
                return path
        failed.write_text(reason or "the table is not of the version that is installed", "utf-8")
    except OSError:
        pass  # The table works without the cache.
    return None


def _make_table(folder: Path) -> str | None:
    """Make the table of the installed DeepSpeed in a folder; return why it could not be made."""
    try:
        run = subprocess.run(
            [sys.executable, "-m", f"{__package__}.make_table", str(folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_S,
            env=os.environ | {"DS_ACCELERATOR": "cpu"},
        )
    except subprocess.TimeoutExpired:
        return f"not made in {_LONGEST_S} s"
    return None if run.returncode == 0 else run.stderr[-2000:]


def _version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, without a suffix.

    Example:
        >>> _version("0.19.8+unknown")
        (0, 19, 8)
    """
    return tuple(int(part) for part in text.split("+")[0].split(".")[:3] if part.isdigit())
