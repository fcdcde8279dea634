"""Reads and checks the inputs of a study, before anything starts."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.errors import JobError, SpaceError, WorkloadError
from autotune.evaluate.options import AUTO, EvaluatorOptions
from autotune.job.base import read_base
from autotune.job.device import Device, find_gpu, load_devices
from autotune.job.model_shape import ModelShape, require_judgeable
from autotune.job.origin import Origin
from autotune.job.resolve import ResolvedJob, launcher_of, resolve_job
from autotune.job.resolved_workload import workload_facts, workload_of
from autotune.job.site import DEFAULT_CEILING
from autotune.job.workload import Workload
from autotune.lint.subject import Launch, Subject
from autotune.predict.links.networks import find_network
from autotune.search.progress import Progress
from autotune.space import SearchSpace, load_space
from autotune.study.folder import STUDY_DB, check_same_job, check_study, study_folder
from autotune.study.store import SAMPLERS
from autotune.study.view import StudySetup
from autotune.tuning.preflight import (
    check_base,
    check_modelled,
    check_target,
    check_trainable_whole,
    device_kind_of,
    early_ceiling_bytes,
    require_listener,
)
from autotune.tuning.request import TuneRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedStudy:
    """The checked inputs of a study, and where it is stored."""

    request: TuneRequest
    resolved: ResolvedJob
    evaluator_options: EvaluatorOptions
    shape: ModelShape
    workload: Workload
    space: SearchSpace
    """Bound to the workload."""
    unbound_space: SearchSpace
    device_kind: str
    setup: StudySetup
    """The known part; a resumed study has the setup of its first run."""
    wanted: str
    """The evaluator; empty where the pool decides."""
    folder: Path
    storage: str
    extra_devices: tuple[Device, ...]
    """Those of `--devices`."""

    @property
    def base(self) -> Mapping[str, Any]:
        """The user's ds_config; empty when there is none."""
        return self.resolved.subject.config

    @property
    def memory_ceiling(self) -> str:
        """The ceiling as given: a share or a size."""
        return self.resolved.job.memory_ceiling or DEFAULT_CEILING

    @property
    def probed(self) -> Mapping[str, Any] | None:
        """The content of `--probe`."""
        return self.resolved.site.probe

    @property
    def link(self) -> str | None:
        """Network between nodes; None is the catalogue's for the device."""
        return self.resolved.site.link

    @property
    def node_host_bytes(self) -> int | None:
        """Memory of an emulated or modelled node; None is this host's, or not judged."""
        return self.resolved.site.host_bytes

    @property
    def target_workload(self) -> Workload | None:
        """The workload on `--target-gpus`; None without that option.

        Raises:
            WorkloadError: it cannot be trained on so many ranks.
        """
        gpus = self.request.target_gpus
        if gpus is None:
            return None
        described = replace(self.request.job, gpus=gpus, nodes=None, gpus_per_node=None)
        here = self.resolved.subject
        subject = replace(here, launch=Launch(launcher=here.launch.launcher))
        try:
            resolved = resolve_job(described, subject=subject, job_file=self.request.job_file)
            return workload_of(resolved, device_kind=self.device_kind)
        except WorkloadError as error:
            raise WorkloadError(
                *(f"--target-gpus {gpus}: {fault}" for fault in error.faults)
            ) from error


def prepare(request: TuneRequest, progress: Progress) -> PreparedStudy:
    """Read and check all inputs.

    Raises:
        AutotuneError: something the user can fix; nothing was started or written.
    """
    device_kind = device_kind_of(request)
    check_modelled(request)
    resolved = resolve_job(request.job, subject=_base(request), job_file=request.job_file)
    check_trainable_whole(resolved)
    workload = workload_of(resolved, device_kind=device_kind)
    shape, job = workload.model, resolved.job
    require_judgeable(shape)
    evaluator_options = _evaluator_options(request, resolved)
    evaluator_options.check()
    check_target(request, workload.world_size)
    extra_devices = load_devices(job.devices) if job.devices else ()
    if request.sampler not in SAMPLERS:
        raise SpaceError(f"--sampler {request.sampler}: must be {' or '.join(SAMPLERS)}")
    if job.link is not None:
        find_network(job.link)
    unbound_space = load_space(request.space)
    folder = study_folder(request.studies_folder, request.study, shape.name, workload.world_size)
    storage = request.storage or f"sqlite:///{folder / STUDY_DB}"
    check_study(folder, storage, resume=request.resume, named=request.study is not None)
    gpu_type = evaluator_options.gpu_type
    setup = StudySetup(
        workload=workload,
        space=unbound_space.bind(workload, resolved.subject.config),
        base=resolved.subject.config,
        device_kind=device_kind,
        ceiling_bytes=early_ceiling_bytes(request, resolved, device_kind),
        # With auto a resumed study decides, else the pool.
        evaluator="" if request.evaluator == AUTO else request.evaluator,
        seed=secrets.randbelow(2**31) if request.seed is None else request.seed,
        environment={},
        gpu_type=find_gpu(gpu_type, extra=extra_devices).name if gpu_type else None,
        job={name: fact.to_json() for name, fact in workload_facts(resolved).items()},
    )
    wanted = setup.evaluator
    if request.resume:
        begun = check_same_job(folder, storage, setup)
        wanted, gpu_type = begun.evaluator, gpu_type or begun.gpu_type
    if request.ray_address:
        require_listener(request.ray_address)
    if request.base is not None:
        check_base(request, resolved, workload, progress)
    study = PreparedStudy(
        request=request,
        resolved=resolved,
        evaluator_options=replace(evaluator_options, gpu_type=gpu_type),
        shape=shape,
        workload=workload,
        space=setup.space,
        unbound_space=unbound_space,
        device_kind=device_kind,
        setup=setup,
        wanted=wanted,
        folder=folder,
        storage=storage,
        extra_devices=extra_devices,
    )
    _ = study.target_workload  # reports its faults before anything starts
    return study


def _base(request: TuneRequest) -> Subject | None:
    if request.base is None:
        return None
    return read_base(request.base, launcher=launcher_of(request.job, request.job_file))


def _evaluator_options(request: TuneRequest, resolved: ResolvedJob) -> EvaluatorOptions:
    """Return the evaluator's options.

    A job file describes the final run: its GPU type and nodes are ignored where trials run.
    """
    job = resolved.job
    if job.gpus is None:
        raise JobError("--gpus: missing; give it, or write it into autotune.yaml")
    per_node = job.gpus_per_node or (job.gpus // job.nodes if job.nodes else None)
    options = EvaluatorOptions(
        evaluator=request.evaluator, gpus=job.gpus, gpus_per_node=per_node, gpu_type=job.gpu_type
    )
    asked = {name for name, fact in resolved.facts.items() if fact.origin is Origin.OPTION}
    if options.runs_nothing:
        return options
    return replace(
        options,
        gpu_type=job.gpu_type if "gpu_type" in asked else None,
        gpus_per_node=(
            per_node if options.may_emulate or asked & {"gpus_per_node", "nodes"} else None
        ),
    )
