"""A study's folder and storage: created, or opened again for the same job."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune import dotted
from autotune.ds_config.build import MICRO_BATCH
from autotune.errors import StoreError
from autotune.evaluate.evaluator_kind import caveats_of
from autotune.job.ceiling import format_gib
from autotune.job.model_shape import ModelShape
from autotune.study.environment import THREADS_PER_RANK
from autotune.study.store import StoredStudy
from autotune.study.view import StudySetup

STUDY_DB = "study.db"

# Other differences between the runs of a study (seed, environment) are recorded, not compared.
_OPTIONS = {
    "gpus": "--gpus",
    "seq_len": "--seq-len",
    "global_batch_size": "--global-batch-size",
    "precision": "--precision",
    "device": "--device",
    "evaluator": "--evaluator",
    "gpus_per_node": "--gpus-per-node",
    "communication": "the source of communication times",
    "gpu_type": "--gpu-type",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedStudy:
    """A study and its setup; on a resume, the setup of its first run."""

    stored: StoredStudy
    setup: StudySetup


def study_folder(studies: Path, name: str | None, model: str, gpus: int) -> Path:
    """Return the folder of a study; without a name, one from model, ranks and time."""
    if name is None:
        name = f"{Path(model).name}-{gpus}x-{time.strftime('%Y%m%d-%H%M%S')}"
    if not name or "/" in name or name.startswith("."):
        raise StoreError(
            f"--study {name!r}: must be a folder's name, without slashes or a leading dot"
        )
    return studies / name


def check_study(folder: Path, storage_url: str, *, resume: bool, named: bool) -> None:
    """Raise if a study cannot be created or resumed, before anything is started.

    Raises:
        StoreError: the study exists without `resume`, or does not exist with it; or the storage
        cannot be opened.
    """
    if resume and not named:
        raise StoreError("--resume: name the study with --study NAME")
    in_folder = storage_url.endswith(f"{folder / STUDY_DB}")
    # A study in a database may be resumed on another machine, which has no folder of it yet.
    if resume and in_folder and not folder.exists():
        raise StoreError(f"--resume: there is no study {folder}; leave --resume out to start one")
    if not resume and folder.exists() and any(folder.iterdir()):
        raise StoreError(
            f"--study {folder.name}: {folder} exists; continue with --resume, or "
            "choose another name"
        )
    _require_folder(folder)
    if resume or not in_folder:
        StoredStudy.check(folder.name, storage_url, exists=resume)


def check_same_job(folder: Path, storage_url: str, setup: StudySetup) -> StudySetup:
    """Return the setup of a study's first run, if it is the same job.

    Args:
        folder: the study's.
        storage_url: its storage.
        setup: the requested one; a `ceiling_bytes` of 0 is not compared.

    Raises:
        StoreError: it belongs to another workload, space, ceiling or device.
    """
    stored = StoredStudy(folder.name, storage_url, create=False)
    begun = stored.attributes.get("setup")
    stored.close()
    if begun is None:
        raise StoreError(
            f"--resume {folder.name}: its driver ended before a trial started; remove {folder} "
            "and leave --resume out, or choose another name"
        )
    first = StudySetup.from_json(begun)
    faults = [
        f"--resume {folder.name}: {difference}; use the options it was started with, or start "
        "another study"
        for difference in differences(first, setup)
    ]
    if faults:
        raise StoreError(*faults)
    return first


def open_study(folder: Path, storage_url: str, setup: StudySetup, *, resume: bool) -> OpenedStudy:
    """Create the study, or open it and check that it is the same job.

    Raises:
        StoreError: it belongs to another workload, space, ceiling or device, or cannot be created.
    """
    if resume:
        setup = check_same_job(folder, storage_url, setup)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be created: {error.strerror}") from error
    stored = StoredStudy(folder.name, storage_url, create=not resume)
    if not resume:
        stored.set_attribute("setup", setup.to_json())
        # Short, for the dashboard.
        stored.set_attribute("evaluator", setup.evaluator)
        if clauses := caveats_of(setup.evaluator, setup.communication):
            stored.set_attribute("not_shown", "; ".join(clauses))
    return OpenedStudy(stored=stored, setup=setup)


def _require_folder(folder: Path) -> None:
    """Check, before anything is started, that a folder can be created."""
    nearest = next(path for path in folder.absolute().parents if path.exists())
    if not nearest.is_dir():
        raise StoreError(f"{folder}: cannot be created: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK):
        raise StoreError(f"{folder}: cannot be created: {nearest} is not writable")


def differences(first: StudySetup, now: StudySetup) -> Iterator[str]:
    """Yield a clause for each difference of two setups, without those that follow from another."""
    model, other_model = first.workload.model, now.workload.model
    if model != other_model:
        difference = _shape_difference(model, other_model)
        yield f"the model is {other_model.name}, the study's is {difference}"
    before, after = _comparable(first), _comparable(now)
    for key, option in _OPTIONS.items():
        if after[key] is not None and before[key] != after[key]:
            yield f"{option} is {after[key]}, the study's is {before[key]}"
    yield from _node_differences(first, now)
    base, other_base = dotted.flatten(first.base), dotted.flatten(now.base)
    keys = sorted(k for k in base.keys() | other_base.keys() if base.get(k) != other_base.get(k))
    if keys:
        yield f"--base differs in {', '.join(keys)}"
    other_device = now.gpu_type is not None and now.gpu_type != first.gpu_type
    if now.ceiling_bytes and not other_device and first.ceiling_bytes != now.ceiling_bytes:
        yield (
            f"--memory-ceiling is {format_gib(now.ceiling_bytes)}, the study's is "
            f"{format_gib(first.ceiling_bytes)}"
        )
    same_batch = first.workload.sequences_per_rank == now.workload.sequences_per_rank
    space, other_space = _parameters(first), _parameters(now)
    keys = sorted(
        k
        for k in space.keys() | other_space.keys()
        if space.get(k) != other_space.get(k) and (same_batch or k != MICRO_BATCH)
    )
    if keys:
        yield f"the search space differs in {', '.join(keys)}"


def _node_differences(first: StudySetup, now: StudySetup) -> Iterator[str]:
    """Yield a clause for each difference of the modelled nodes."""
    network, other_network = _network(first), _network(now)
    if network and other_network and network != other_network:
        yield f"--link is {other_network}, the study's is {network}"
    if _curves(first) and _curves(now) and _curves(first) != _curves(now):
        yield "--probe differs from the study's"
    if all("node_host_bytes" in setup.environment for setup in (first, now)):
        recorded, other = map(_host_memory, (first, now))
        if recorded != other:
            yield f"--host-memory is {other}, the study's is {recorded}"
    threads, other_threads = (s.environment.get(THREADS_PER_RANK) for s in (first, now))
    if threads and other_threads and threads != other_threads:
        yield (
            f"a rank's CPU threads are {other_threads}, the study's are {threads} "
            f"(--cpu-threads {threads})"
        )


def _shape_difference(model: ModelShape, other: ModelShape) -> str:
    if model.name != other.name:
        return model.name
    before, after = dotted.flatten(model.to_json()), dotted.flatten(other.to_json())
    changed = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
    return f"another one of that name (it differs in {', '.join(changed)})"


def _comparable(setup: StudySetup) -> Mapping[str, Any]:
    workload = setup.workload
    return {
        "gpus": workload.world_size,
        "seq_len": workload.seq_len,
        "global_batch_size": workload.global_batch_size,
        "precision": workload.precision,
        "device": setup.device_kind,
        # Empty until the pool is known.
        "evaluator": setup.evaluator or None,
        "gpus_per_node": setup.gpus_per_node,
        "communication": setup.communication,
        "gpu_type": setup.gpu_type,
    }


def _network(setup: StudySetup) -> str | None:
    """Return the network between nodes; None for real ranks and studies of older versions."""
    return None if setup.links is None else str(setup.links["network"]["name"])


def _host_memory(setup: StudySetup) -> str:
    given = setup.environment["node_host_bytes"]
    return "not given" if given is None else format_gib(given)


def _curves(setup: StudySetup) -> Sequence[Any]:
    """Return what a probe measured of the links; empty without a probe."""
    return tuple((setup.links or {}).get("curves") or ())


def _parameters(setup: StudySetup) -> Mapping[str, Any]:
    return {parameter.key: parameter.to_json() for parameter in setup.space.parameters}
