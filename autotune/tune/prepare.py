"""What a study is about, with everything refused that can be refused before anything starts."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.ds_config.read import read_ds_config
from autotune.errors import SpaceError, WorkloadError
from autotune.evaluate.options import AUTO, EvaluatorOptions
from autotune.job.ceiling import parse_bytes
from autotune.job.device import Device, find_gpu, load_devices
from autotune.job.model_shape import ModelShape, load_model_shape, require_judgeable
from autotune.job.workload import Workload, resolve_workload
from autotune.predict.links.networks import find_network
from autotune.predict.links.probe_file import read_probe
from autotune.search.progress import Progress
from autotune.space import SearchSpace, load_space
from autotune.study.folder import STUDY_DB, check_same_job, check_study, study_folder
from autotune.study.store import SAMPLERS
from autotune.study.view import StudySetup
from autotune.tune.preflight import (
    check_base,
    check_modelled,
    check_target,
    device_kind_of,
    early_ceiling_bytes,
    require_listener,
)
from autotune.tune.request import TuneRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is tuned, and where it is kept."""

    request: TuneRequest
    evaluator_options: EvaluatorOptions
    shape: ModelShape
    base: Mapping[str, Any]
    """The user's ds_config; empty when there is none."""
    workload: Workload
    space: SearchSpace
    """Bound to the workload."""
    unbound_space: SearchSpace
    device_kind: str
    setup: StudySetup
    """As far as it is known; of a study that is resumed what it was begun with."""
    wanted: str
    """The evaluator; empty while only a pool can tell."""
    folder: Path
    storage: str
    extra_devices: tuple[Device, ...]
    """Those of `--devices`."""
    probed: Mapping[str, Any] | None
    """What `--probe` says."""
    node_host_bytes: int | None
    """Memory of a node that is not there; None is this host's, or not asked about."""

    @property
    def target_workload(self) -> Workload | None:
        """The same on `--target-gpus`; None without.

        Raises:
            WorkloadError: it cannot be trained there.
        """
        gpus = self.request.target_gpus
        if gpus is None:
            return None
        try:
            return _workload(self.request, gpus, self.shape, self.base)
        except WorkloadError as error:
            raise WorkloadError(
                *(f"--target-gpus {gpus}: {fault}" for fault in error.faults)
            ) from error


def prepare(request: TuneRequest, progress: Progress) -> Job:
    """Read and check everything that a user gave.

    Raises:
        AutotuneError: something the user can mend; nothing was started or written.
    """
    base = read_ds_config(request.base) if request.base else {}
    shape = load_model_shape(request.model)
    require_judgeable(shape)
    device_kind = device_kind_of(request)
    evaluator_options = EvaluatorOptions(
        evaluator=request.evaluator,
        gpus=request.gpus,
        gpus_per_node=request.gpus_per_node,
        gpu_type=request.gpu_type,
    )
    evaluator_options.check()
    check_modelled(request)
    check_target(request)
    extra_devices = load_devices(request.devices) if request.devices else ()
    if request.sampler not in SAMPLERS:
        raise SpaceError(f"--sampler {request.sampler}: must be {' or '.join(SAMPLERS)}")
    if request.link is not None:
        find_network(request.link)
    node_host_bytes = (
        parse_bytes(request.host_memory, where="--host-memory") if request.host_memory else None
    )
    probed = read_probe(request.probe) if request.probe else None
    workload = _workload(request, request.gpus, shape, base)
    unbound_space = load_space(request.space)
    space = unbound_space.bind(workload, base)
    ceiling_bytes = early_ceiling_bytes(request, device_kind, extra_devices)
    folder = study_folder(request.studies_folder, request.study, shape.name, request.gpus)
    storage = request.storage or f"sqlite:///{folder / STUDY_DB}"
    check_study(folder, storage, resume=request.resume, named=request.study is not None)
    setup = StudySetup(
        workload=workload,
        space=space,
        base=base,
        device_kind=device_kind,
        ceiling_bytes=ceiling_bytes,
        # With auto the study that is resumed decides, else the pool.
        evaluator="" if request.evaluator == AUTO else request.evaluator,
        seed=secrets.randbelow(2**31) if request.seed is None else request.seed,
        environment={},
        gpu_type=find_gpu(request.gpu_type, extra=extra_devices).name if request.gpu_type else None,
    )
    wanted, gpu_type = setup.evaluator, request.gpu_type
    if request.resume:
        begun = check_same_job(folder, storage, setup)
        wanted, gpu_type = begun.evaluator, gpu_type or begun.gpu_type
    if request.ray_address:
        require_listener(request.ray_address)
    if base:
        check_base(request, base, workload, progress)
    job = Job(
        request=request,
        evaluator_options=replace(evaluator_options, gpu_type=gpu_type),
        shape=shape,
        base=base,
        workload=workload,
        space=space,
        unbound_space=unbound_space,
        device_kind=device_kind,
        setup=setup,
        wanted=wanted,
        folder=folder,
        storage=storage,
        extra_devices=extra_devices,
        probed=probed,
        node_host_bytes=node_host_bytes,
    )
    _ = job.target_workload  # what is wrong with it is told now
    return job


def _workload(
    request: TuneRequest, gpus: int, shape: ModelShape, base: Mapping[str, Any]
) -> Workload:
    return resolve_workload(
        shape,
        gpus=gpus,
        base=base,
        seq_len=request.seq_len,
        global_batch_size=request.global_batch_size,
        precision=request.precision,
        device_kind=device_kind_of(request),
    )
