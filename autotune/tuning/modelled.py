"""Runs a modelled study: no pool, no Ray, no device."""

from dataclasses import replace

from autotune.ds_config.build import build_ds_config
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.evaluate.modelled import ModelledEvaluator
from autotune.job.ceiling import parse_ceiling
from autotune.job.cpu_threads import assumed_cpu_threads
from autotune.job.device import find_gpu
from autotune.predict.links.communication import Group
from autotune.predict.links.probe_file import check_device
from autotune.predict.memory.predict import Surroundings, predict_memory
from autotune.predict.throughput import SpeedSurroundings
from autotune.predict.throughput.surroundings import check_speeds
from autotune.predict.training_job import ModelSettings, read_training
from autotune.search.progress import Progress
from autotune.sigterm import interrupted_by_sigterm
from autotune.study.environment import (
    THREADS_ORIGIN,
    THREADS_PER_RANK,
    describe_environment,
)
from autotune.study.folder import open_study
from autotune.tuning.pipeline import run_study
from autotune.tuning.prepare import PreparedStudy
from autotune.tuning.request import TuneResult
from autotune.tuning.scale_up import target_of


def tune_modelled(study: PreparedStudy, progress: Progress) -> TuneResult:
    """Search, confirm and export by predictions alone.

    Raises:
        AutotuneError: something the user can fix; nothing was overwritten.
        KeyboardInterrupt: `--resume` continues the study.
    """
    request, evaluator_options = study.request, study.evaluator_options
    assert evaluator_options.gpu_type is not None
    device = find_gpu(evaluator_options.gpu_type, extra=study.extra_devices)
    check_speeds(device, study.workload.precision)
    local_ranks = evaluator_options.gpus_per_node_of(EvaluatorKind.MODELLED)
    assert local_ranks is not None
    ceiling_bytes = parse_ceiling(study.memory_ceiling, device_bytes=device.memory_bytes)
    if study.probed is not None:
        check_device(study.probed, device.name, where=f"--probe {study.resolved.job.probe}")
    job = study.resolved.job
    threads = assumed_cpu_threads(
        local_ranks=local_ranks,
        given=job.cpu_threads,
        launcher=None if job.launcher is None else job.launcher.starter,
    )
    speed = SpeedSurroundings.of(
        device,
        local_ranks=local_ranks,
        network=study.link,
        probe=study.probed,
        cpu_threads=threads.count,
    )
    evaluator = ModelledEvaluator(
        workload=study.workload,
        memory=Surroundings(
            device=device,
            ceiling_bytes=ceiling_bytes,
            local_ranks=local_ranks,
            host_bytes=study.node_host_bytes,
        ),
        speed=speed,
    )
    _check_predictable(study, evaluator)
    setup = replace(
        study.setup,
        ceiling_bytes=ceiling_bytes,
        evaluator=evaluator.name,
        gpus_per_node=local_ranks,
        communication=speed.links.source_for(
            Group.whole(study.workload.world_size, local_ranks=local_ranks)
        ),
        links=speed.links.to_json(),
        gpu_type=device.name,
        environment={
            **describe_environment((), device_kind="cuda", device_model=device.name),
            "node_host_bytes": study.node_host_bytes,
            THREADS_PER_RANK: threads.count,
            THREADS_ORIGIN: threads.origin,
        },
    )
    with interrupted_by_sigterm():
        return run_study(
            open_study(study.folder, study.storage, setup, resume=request.resume),
            evaluator,
            study.folder,
            request=request,
            progress=progress,
            target=target_of(study, device, speed, ceiling_bytes=ceiling_bytes),
        )


def _check_predictable(study: PreparedStudy, evaluator: ModelledEvaluator) -> None:
    """Predict one trial, so that a model that cannot be predicted fails before the search.

    Raises:
        WorkloadError: the model's own code cannot be traced.
    """
    ds_config = build_ds_config({}, study.workload, {"zero_optimization.stage": 0})
    training = read_training(ds_config, study.workload, ModelSettings())
    predict_memory(training, evaluator.memory)
