"""A study's folder and storage: made new, or opened again for the same job."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune import dotted
from autotune.errors import StoreError
from autotune.search.sampler import StoredStudy
from autotune.study import StudySetup

STUDY_DB = "study.db"

# What may differ between the runs of one study: where its trials run is noted, not compared.
_NOT_COMPARED = ("seed", "environment", "workload.origin")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedStudy:
    """A study and what it was set up with, which on a resume is what it was first asked for."""

    stored: StoredStudy
    setup: StudySetup


def study_folder(studies: Path, name: str | None, model: str, gpus: int) -> Path:
    """Return the folder of a study; without a name, one that tells model, ranks and time."""
    if name is None:
        name = f"{Path(model).name}-{gpus}x-{time.strftime('%Y%m%d-%H%M%S')}"
    if not name or "/" in name or name.startswith("."):
        raise StoreError(f"--study {name!r}: is a folder's name, without slashes or a leading dot")
    return studies / name


def check_study(folder: Path, storage_url: str, *, resume: bool, named: bool) -> None:
    """Refuse what cannot be begun or resumed, before anything is started.

    Raises:
        StoreError: the study exists and is not to be resumed, or does not exist and is; or the
            storage cannot be opened.
    """
    if resume and not named:
        raise StoreError("--resume: say which study with --study NAME")
    if resume and not folder.exists():
        raise StoreError(f"--resume: there is no study {folder}; leave --resume out to begin one")
    if not resume and folder.exists() and any(folder.iterdir()):
        raise StoreError(
            f"--study {folder.name}: {folder} exists; go on with --resume, or choose another name"
        )
    in_folder = storage_url.endswith(f"{folder / STUDY_DB}")
    if resume or not in_folder:
        StoredStudy.check(folder.name, storage_url, exists=resume)


def open_study(folder: Path, storage_url: str, setup: StudySetup, *, resume: bool) -> OpenedStudy:
    """Make the study, or open it and make sure that it is the same job.

    Raises:
        StoreError: it belongs to another workload, space, ceiling or device.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stored = StoredStudy(folder.name, storage_url, create=not resume)
    if not resume:
        # Through JSON: what a resume will read is what this run uses.
        stored.set_attribute("setup", setup.to_json())
        return OpenedStudy(stored=stored, setup=setup)
    first = StudySetup.from_json(stored.attributes["setup"])
    faults = [
        f"--resume {folder.name}: {key} is {now!r}, the study was begun with {then!r}; use the "
        "options it was begun with, or begin another study"
        for key, then, now in _differences(first, setup)
    ]
    if faults:
        raise StoreError(*faults)
    return OpenedStudy(stored=stored, setup=first)


def _differences(first: StudySetup, now: StudySetup) -> Iterator[tuple[str, Any, Any]]:
    before, after = _comparable(first), _comparable(now)
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield key, before.get(key), after.get(key)


def _comparable(setup: StudySetup) -> Mapping[str, Any]:
    flat = dotted.flatten(setup.to_json())
    # The space is compared by its parameters, one by one.
    for parameter in flat.pop("space.parameters"):
        flat[f"space.{parameter['key']}"] = parameter
    return {
        key: value
        for key, value in flat.items()
        if not any(key == name or key.startswith(f"{name}.") for name in _NOT_COMPARED)
    }
