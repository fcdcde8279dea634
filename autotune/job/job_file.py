"""`autotune.yaml`: a job described once, beside the training script."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from autotune.errors import JobError
from autotune.job.job import Job
from autotune.job.launcher import Launcher

NAME = "autotune.yaml"
_KINDS: Mapping[str, type] = {
    name: next(kind for kind in get_args(hint) if kind is not NoneType)
    for name, hint in get_type_hints(Job).items()
}
"""Type of each field."""
_SIZES = frozenset({"gpu_memory", "memory_ceiling", "host_memory"})
"""Texts that may also be written as numbers."""


def find_job_file(named: Path | None, *, folder: Path = Path()) -> Path | None:
    """Return the job file: the named one, else `autotune.yaml` in a folder; None without.

    Raises:
        JobError: the named file does not exist.
    """
    if named is None:
        found = folder / NAME
        return found if found.is_file() else None
    path = named / NAME if named.is_dir() else named
    if not path.is_file():
        raise JobError(f"--job {named}: no such file; write one with the options' names as keys")
    return path


def read_job_file(path: Path) -> Job:
    """Read a job file. Its keys are the options' names; its paths are relative to its folder.

    Raises:
        JobError: it cannot be read, or a key or value is wrong; all are named.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise JobError(f"{path}: not readable as YAML: {error}") from error
    if not isinstance(content, Mapping):
        raise JobError(f"{path}: must map option names to values, such as `gpus: 8`")
    faults: list[str] = []
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if name not in _KINDS:
            faults.append(f"{path}: {key}: not an option of a job; {_nearest(name)}")
        elif (fault := _type_fault(name, value)) is not None:
            faults.append(f"{path}: {key}={value!r}: {fault}")
        elif value is not None:
            values[name] = _converted(name, value, folder=path.parent)
    if faults:
        raise JobError(*faults)
    try:
        return Job(**values)
    except JobError as error:
        raise JobError(*(f"{path}: {fault}" for fault in error.faults)) from error


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, _KINDS, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known keys: {', '.join(_KINDS)}"


def _type_fault(name: str, value: Any) -> str | None:
    kind = _KINDS[name]
    if value is None:
        return None
    if kind is bool:
        return None if isinstance(value, bool) else "must be true or false"
    if kind is Launcher:
        known = [launcher.value for launcher in Launcher]
        return None if value in known else f"must be {' or '.join(known)}"
    if kind is int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return None if whole else "must be a whole number"
    if kind is float:
        return None if _number(value) is not None else "must be a number"
    if name in _SIZES and not isinstance(value, bool) and isinstance(value, int | float):
        return None
    return None if isinstance(value, str) else "must be a text"


def _number(value: Any) -> float | None:
    """Return a number; YAML reads 6.7e9 as a text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _converted(name: str, value: Any, *, folder: Path) -> Any:
    kind = _KINDS[name]
    if kind is Path or (name == "model" and (folder / str(value)).exists()):
        return kind(folder / str(value))
    return _number(value) if kind is float else kind(value)
