"""`autotune run` from end to end: set up, search, confirm, export."""

import os
import secrets
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.ceiling import parse_bytes, parse_ceiling
from autotune.ds_config.read import read_ds_config
from autotune.environment import describe_environment
from autotune.errors import SpaceError
from autotune.evaluate import Evaluator
from autotune.evaluate.choose import (
    AUTO,
    Wish,
    describe_choice,
    describe_shares,
    evaluator_of,
    make_evaluator,
)
from autotune.evaluate.kinds import EMULATED, UNTIMED
from autotune.export import write_study_files
from autotune.hardware import known_device
from autotune.model_shape import load_model_shape
from autotune.pool.pool import Pool, PoolRequest
from autotune.predict.communication import Links
from autotune.predict.networks import find_network
from autotune.predict.probe_file import host_slowdown, read_probe
from autotune.search.budget import Budget
from autotune.search.confirm import best_of, confirm, is_complete, tokens_per_s
from autotune.search.loop import Search
from autotune.search.progress import Progress
from autotune.search.sampler import SAMPLERS, StoredStudy
from autotune.search.screen import Screen, read_rejections
from autotune.space import load_space
from autotune.space.needed_ops import needed_ops
from autotune.study import StudySetup, StudyView
from autotune.study_folder import (
    STUDY_DB,
    OpenedStudy,
    check_same_job,
    check_study,
    open_study,
    study_folder,
)
from autotune.tune.preflight import (
    check_base,
    device_kind_of,
    early_ceiling_bytes,
    require_listener,
    require_modelling_code,
)
from autotune.tune.request import TuneRequest, TuneResult
from autotune.workload import resolve_workload

_MAX_FINALISTS = 3
"""Trials that are confirmed, one after the other, as long as each fails its confirmation."""


def tune(request: TuneRequest, progress: Progress) -> TuneResult:
    """Search, confirm and export.

    Raises:
        AutotuneError: something the user can mend; nothing was overwritten.
        KeyboardInterrupt: after the running trials were ended; `--resume` goes on.
    """
    base = read_ds_config(request.base) if request.base else {}
    shape = load_model_shape(request.model)
    device_kind = device_kind_of(request)
    wish = Wish(evaluator=request.evaluator, gpus=request.gpus, gpus_per_node=request.gpus_per_node)
    wish.check()
    if request.sampler not in SAMPLERS:
        raise SpaceError(f"--sampler {request.sampler}: must be {' or '.join(SAMPLERS)}")
    if request.link is not None:
        find_network(request.link)
    node_host_bytes = (
        parse_bytes(request.host_memory, where="--host-memory") if request.host_memory else None
    )
    probed = read_probe(request.probe) if request.probe else None
    workload = resolve_workload(
        shape,
        gpus=request.gpus,
        base=base,
        seq_len=request.seq_len,
        global_batch_size=request.global_batch_size,
        precision=request.precision,
        device_kind=device_kind,
    )
    space = load_space(request.space).bind(workload, base)
    ceiling_bytes = early_ceiling_bytes(request, device_kind)
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
    )
    wanted = setup.evaluator
    if request.resume:
        wanted = check_same_job(folder, storage, setup).evaluator
    require_modelling_code(shape)
    if request.ray_address:
        require_listener(request.ray_address)
    if base:
        check_base(request, base, workload, progress)
    pool_request = PoolRequest(
        world_size=request.gpus,
        device_kind=device_kind,
        model_type=shape.model_type,
        ray_address=request.ray_address,
        emulate=wanted == EMULATED if wanted else None,
    )
    with Pool(pool_request) as pool, _interrupted_by_sigterm():
        ceiling_bytes = parse_ceiling(request.memory_ceiling, device_bytes=pool.device_bytes)
        gpus_per_node = wish.gpus_per_node_of(evaluator_of(pool))
        links = _links(request, pool, probed) if pool.emulates else None
        communication = (links.source if links else UNTIMED) if pool.emulates else None
        if not wanted and device_kind == "cuda":
            progress.noted(describe_choice(pool, communication))
        evaluator = make_evaluator(
            pool,
            workload=workload,
            ceiling_bytes=ceiling_bytes,
            gpus_per_node=gpus_per_node,
            links=links,
            node_host_bytes=node_host_bytes,
            host_slowdown=host_slowdown(probed) if probed else 1.0,
            seed=setup.seed,
            study_folder=folder,
        )
        environment = describe_environment(
            pool.device_names,
            device_kind=device_kind,
            device_model=pool.device_model,
            driver=pool.driver,
        )
        setup = replace(
            setup,
            ceiling_bytes=ceiling_bytes,
            evaluator=evaluator.name,
            gpus_per_node=gpus_per_node,
            communication=communication,
            links=links.to_json() if links else None,
            environment=environment | describe_shares(evaluator),
        )
        for note in pool.notes:
            progress.noted(note)
        pool.build_ops(needed_ops(space, workload, base), on_note=progress.noted)
        opened = open_study(folder, storage, setup, resume=request.resume)
        # A study that is resumed goes on with its own seed.
        evaluator = replace(evaluator, seed=opened.setup.seed)
        screen = Screen(
            workload=workload,
            device=known_device(pool.device_model, memory_bytes=pool.device_bytes),
            ceiling_bytes=ceiling_bytes,
            expandable_segments=_has_expandable_segments(),
        )
        return run_study(
            opened,
            evaluator,
            folder,
            request=request,
            progress=progress,
            screen=screen if request.screen else None,
        )


def _links(request: TuneRequest, pool: Pool, probed: Mapping[str, Any] | None) -> Links | None:
    """Return how emulated ranks reach each other; None if collectives are to take no time."""
    if not request.timed:
        return None
    device = known_device(pool.device_model, memory_bytes=pool.device_bytes)
    if probed is None:
        return Links.of_device(device, network=request.link)
    return Links.from_probe(probed, device=device, where=f"--probe {request.probe}")


def _has_expandable_segments() -> bool:
    """Whether torch's allocator is told to grow its segments; the ranks inherit what it is told."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    return any("expandable_segments:True" in os.environ.get(name, "") for name in names)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM, which schedulers send before they kill, end a search as Ctrl-C does.

    Within the pool, since Ray takes the signal when it starts.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_study(
    opened: OpenedStudy,
    evaluator: Evaluator,
    folder: Path,
    *,
    request: TuneRequest,
    progress: Progress,
    screen: Screen | None = None,
) -> TuneResult:
    """Search, confirm and export with any evaluator.

    Args:
        opened: the study.
        evaluator: evaluates its trials.
        folder: the study's.
        request: budget and rounds.
        progress: told of what happens.
        screen: rejects before launch what does not fit; None launches everything.

    Raises:
        DispatchError: the pool failed; what had finished is stored and its files are written.
        KeyboardInterrupt: likewise.
    """
    try:
        _search(opened, evaluator, request=request, progress=progress, screen=screen)
        _confirm(opened.stored, evaluator, num_rounds=request.confirm_rounds, progress=progress)
    finally:
        # Whatever ended the search, its files tell what there is.
        record = write_study_files(StudyView.of(opened.stored), folder)
    return TuneResult(study=StudyView.of(opened.stored), folder=folder, record=record)


def _search(
    opened: OpenedStudy,
    evaluator: Evaluator,
    *,
    request: TuneRequest,
    progress: Progress,
    screen: Screen | None,
) -> None:
    setup = opened.setup
    if screen is not None:
        screen.rejections += read_rejections(opened.stored.attributes)
    search = Search(
        study=opened.stored,
        evaluator=evaluator,
        space=setup.space,
        workload=setup.workload,
        base=setup.base,
        ceiling_bytes=setup.ceiling_bytes,
        seed=setup.seed,
        budget=Budget(max_trials=request.trials, max_s=request.time_budget_s),
        progress=progress,
        screen=screen,
        sampler=request.sampler,
    )
    try:
        search.run()
    finally:
        if screen is not None:
            opened.stored.set_attribute("screen", screen.report().to_json())


def _confirm(
    stored: StoredStudy, evaluator: Evaluator, *, num_rounds: int, progress: Progress
) -> None:
    """Confirm the fastest proposal against the fastest baseline; the next one if it fails.

    If all of them fail, or there is none, the baseline is run by itself.
    """
    records = stored.records()
    baseline = best_of([r for r in records if r.candidate.is_baseline])
    finalists = sorted(
        (r for r in records if not r.candidate.is_baseline and is_complete(r)),
        key=tokens_per_s,
        reverse=True,
    )[:_MAX_FINALISTS]
    confirmations = []
    for winner in [*finalists, baseline] if baseline else finalists:
        confirmation = confirm(
            evaluator, winner, baseline, num_rounds=num_rounds, progress=progress
        )
        confirmations.append(confirmation.to_json())
        stored.set_attribute("confirmations", confirmations)
        if confirmation.failure is None:
            return
