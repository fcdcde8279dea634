"""Runs a study on a pool's devices, measured or emulated."""

import os
from collections import Counter
from dataclasses import replace
from typing import Any

from autotune.errors import HardwareError
from autotune.evaluate.emulated import EmulatedEvaluator
from autotune.evaluate.evaluator_kind import UNTIMED, EvaluatorKind
from autotune.evaluate.factory import (
    describe_choice,
    describe_shares,
    evaluator_of,
    make_evaluator,
)
from autotune.evaluate.measured import MeasuredEvaluator
from autotune.job.ceiling import parse_ceiling
from autotune.job.cpu_threads import FAIR_SHARE, CpuThreads, resolve_cpu_threads
from autotune.job.device import find_device, known_device
from autotune.pool.pool import Pool, PoolRequest
from autotune.predict.links.communication import Group, Links
from autotune.predict.links.probe_file import check_device, host_slowdown
from autotune.predict.throughput import SpeedSurroundings
from autotune.search.memory_screen import Screen
from autotune.search.progress import Progress
from autotune.search.speed_model import SpeedModel
from autotune.sigterm import interrupted_by_sigterm
from autotune.space.needed_ops import needed_ops
from autotune.study.environment import THREADS_ORIGIN, describe_environment
from autotune.study.folder import open_study
from autotune.study.view import StudySetup
from autotune.tuning.pipeline import run_study
from autotune.tuning.prepare import PreparedStudy
from autotune.tuning.request import TuneResult
from autotune.tuning.scale_up import target_of


def tune_on_pool(study: PreparedStudy, progress: Progress) -> TuneResult:
    """Search, confirm and export on devices.

    Raises:
        AutotuneError: something the user can fix; nothing was overwritten.
        KeyboardInterrupt: after the running trials were ended; `--resume` continues the study.
    """
    request = study.request
    pool_request = PoolRequest(
        world_size=study.workload.world_size,
        device_kind=study.device_kind,
        model_type=study.shape.model_type,
        ray_address=request.ray_address,
        emulate=study.wanted == EvaluatorKind.EMULATED if study.wanted else None,
    )
    with interrupted_by_sigterm(), Pool(pool_request) as pool:
        if study.probed is not None:
            check_device(
                study.probed, pool.device_model, where=f"--probe {study.resolved.job.probe}"
            )
        ceiling_bytes = parse_ceiling(study.memory_ceiling, device_bytes=pool.device_bytes)
        threads = _cpu_threads(study, pool)
        evaluator = _evaluator(study, pool, ceiling_bytes, progress, threads=threads)
        setup = _setup(study, pool, evaluator, ceiling_bytes, threads=threads)
        for note in pool.notes:
            progress.noted(note)
        ops = needed_ops(study.space, study.workload, study.base)
        pool.build_ops(ops, on_note=progress.noted)
        opened = open_study(study.folder, study.storage, setup, resume=request.resume)
        # A resumed study keeps its seed.
        evaluator = replace(evaluator, seed=opened.setup.seed)
        device = known_device(pool.device_model, memory_bytes=pool.device_bytes)
        screen = Screen(
            workload=study.workload,
            device=device,
            ceiling_bytes=ceiling_bytes,
            host_bytes=judged_host_bytes(
                device_kind=study.device_kind,
                emulates=pool.emulates,
                here_bytes=pool.host_memory_bytes,
                given_bytes=study.node_host_bytes,
            ),
            local_ranks=_local_ranks(pool, evaluator),
            expandable_segments=_has_expandable_segments(),
        )
        around = _speed_surroundings(study, pool, evaluator, progress)
        return run_study(
            opened,
            evaluator,
            study.folder,
            request=request,
            progress=progress,
            screen=screen if request.screen else None,
            speed=SpeedModel(workload=study.workload, surroundings=around) if around else None,
            target=target_of(study, device, around, ceiling_bytes=ceiling_bytes)
            if around
            else None,
        )


def _cpu_threads(study: PreparedStudy, pool: Pool) -> CpuThreads:
    """Return the CPU threads of a rank; a fair share counts every slot of a node."""
    job = study.resolved.job
    per_node = study.evaluator_options.gpus_per_node_of(evaluator_of(pool))
    local_ranks = min(per_node or _group_ranks(pool), study.workload.world_size)
    found = resolve_cpu_threads(
        cores=pool.host_cpus,
        local_ranks=local_ranks,
        given=job.cpu_threads,
        # The nodes of a running cluster have their own environment.
        environment=os.environ if study.request.ray_address is None else None,
        launcher=None if job.launcher is None else job.launcher.starter,
    )
    if found.origin != FAIR_SHARE:
        return found
    return replace(found, count=min(found.count, pool.threads_per_slot))


def _evaluator(
    study: PreparedStudy,
    pool: Pool,
    ceiling_bytes: int,
    progress: Progress,
    *,
    threads: CpuThreads,
) -> MeasuredEvaluator | EmulatedEvaluator:
    links = _links(study, pool) if pool.emulates else None
    gpus_per_node = study.evaluator_options.gpus_per_node_of(evaluator_of(pool))
    if not study.wanted and study.device_kind == "cuda":
        world_size = study.workload.world_size
        progress.noted(describe_choice(pool, _communication(links, gpus_per_node, world_size)))
    return make_evaluator(
        pool,
        workload=study.workload,
        ceiling_bytes=ceiling_bytes,
        gpus_per_node=gpus_per_node,
        links=links,
        node_host_bytes=study.node_host_bytes,
        host_slowdown=host_slowdown(study.probed) if study.probed else 1.0,
        num_threads=threads.count,
        seed=study.setup.seed,
        study_folder=study.folder,
    )


def _communication(links: Links | None, gpus_per_node: int | None, world_size: int) -> str | None:
    """Return the source of the times of collectives; None for real ranks."""
    if gpus_per_node is None:
        return None
    group = Group.whole(world_size, local_ranks=gpus_per_node)
    return links.source_for(group) if links else UNTIMED


def _setup(
    study: PreparedStudy,
    pool: Pool,
    evaluator: MeasuredEvaluator | EmulatedEvaluator,
    ceiling_bytes: int,
    *,
    threads: CpuThreads,
) -> StudySetup:
    gpus_per_node, links = None, None
    node: dict[str, Any] = {THREADS_ORIGIN: threads.origin}
    if isinstance(evaluator, EmulatedEvaluator):
        gpus_per_node, links = evaluator.gpus_per_node, evaluator.links
        node["node_host_bytes"] = study.node_host_bytes
    environment = describe_environment(
        pool.device_names,
        device_kind=study.device_kind,
        device_model=pool.device_model,
        driver=pool.driver,
    )
    return replace(
        study.setup,
        ceiling_bytes=ceiling_bytes,
        evaluator=evaluator.name,
        gpus_per_node=gpus_per_node,
        communication=_communication(links, gpus_per_node, study.workload.world_size),
        links=links.to_json() if links else None,
        environment=environment | describe_shares(evaluator) | node,
    )


def _speed_surroundings(
    study: PreparedStudy,
    pool: Pool,
    evaluator: MeasuredEvaluator | EmulatedEvaluator,
    progress: Progress,
) -> SpeedSurroundings | None:
    """Return what decides the speed of the trials; None where the speed model lacks the device."""
    if study.device_kind == "cpu":
        return None
    try:
        device = replace(find_device(pool.device_model), memory_bytes=pool.device_bytes)
    except HardwareError:
        target = study.request.target_gpus
        progress.noted(
            f"the speed model does not know {pool.device_model}: no speed is predicted"
            + (f", so --target-gpus {target} is ignored" if target else "")
        )
        return None
    emulated = evaluator if isinstance(evaluator, EmulatedEvaluator) else None
    around = SpeedSurroundings.of(
        device,
        local_ranks=_local_ranks(pool, evaluator),
        network=study.link,
        probe=study.probed,
    )
    if emulated is None:
        return around
    played = around.emulated(num_threads=emulated.terms.num_threads)
    return replace(played, silent=emulated.links is None)


def _local_ranks(pool: Pool, evaluator: MeasuredEvaluator | EmulatedEvaluator) -> int:
    """Return the ranks of a node, real or emulated."""
    if isinstance(evaluator, EmulatedEvaluator):
        return evaluator.gpus_per_node
    return _group_ranks(pool)


def _group_ranks(pool: Pool) -> int:
    """Return the most ranks of one trial that run on one node."""
    return max(Counter(pool.groups[0].nodes).values())


def judged_host_bytes(
    *, device_kind: str, emulates: bool, here_bytes: int, given_bytes: int | None
) -> int | None:
    """Return the host memory of a node that candidates must fit in; None for no limit.

    CPU ranks have none, since their ceiling is a share of it.

    Args:
        device_kind: cuda or cpu.
        emulates: whether ranks are emulated.
        here_bytes: of the pool's smallest node.
        given_bytes: `--host-memory`, for emulated nodes.
    """
    if device_kind == "cpu":
        return None
    return (given_bytes if emulates else None) or here_bytes


def _links(study: PreparedStudy, pool: Pool) -> Links | None:
    """Return the links between emulated ranks; None if collectives take no time."""
    request, probed = study.request, study.probed
    if not request.timed:
        return None
    device = known_device(pool.device_model, memory_bytes=pool.device_bytes)
    if probed is None:
        return Links.of_device(device, network=study.link)
    return Links.from_probe(probed, device=device, where=f"--probe {study.resolved.job.probe}")


def _has_expandable_segments() -> bool:
    """Whether the environment, which the ranks inherit, sets expandable segments for torch."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    return any("expandable_segments:True" in os.environ.get(name, "") for name in names)
