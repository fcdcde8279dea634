"""`autotune run` from end to end: set up, search, confirm, export."""

import difflib
import importlib.util
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune.ceiling import parse_bytes, parse_ceiling
from autotune.ds_config.auto import resolve_auto
from autotune.ds_config.build import BATCH_KEYS, build_ds_config
from autotune.ds_config.read import read_ds_config
from autotune.environment import describe_environment
from autotune.errors import ConfigError, HardwareError, WorkloadError
from autotune.evaluate import Evaluator
from autotune.evaluate.open import open_evaluator
from autotune.export import write_study_files
from autotune.gate.ask import ask_deepspeed
from autotune.hardware import known_device
from autotune.lint.finding import Finding, Severity
from autotune.model_shape import ModelShape, load_model_shape
from autotune.pool import machine
from autotune.pool.pool import Pool, PoolRequest
from autotune.search.budget import Budget
from autotune.search.confirm import best_of, confirm, is_complete, tokens_per_s
from autotune.search.loop import Search
from autotune.search.progress import Progress
from autotune.search.refusal import lint_for
from autotune.search.sampler import StoredStudy
from autotune.search.screen import Screen, read_rejections
from autotune.space import load_space
from autotune.study import StudySetup, StudyView
from autotune.study_folder import (
    STUDY_DB,
    OpenedStudy,
    check_same_job,
    check_study,
    open_study,
    study_folder,
)
from autotune.workload import Workload, resolve_workload

_CONNECT_S = 5.0
_MAX_FINALISTS = 3
"""Trials that are confirmed, one after the other, as long as each fails its confirmation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """What a user asks for; every field is an option of `autotune run`."""

    model: str
    gpus: int
    base: Path | None = None
    space: str = "zero"
    seq_len: int | None = None
    global_batch_size: int | None = None
    precision: str | None = None
    memory_ceiling: str = "90%"
    trials: int = 30
    time_budget_s: float | None = None
    device: str = "auto"
    ray_address: str | None = None
    study: str | None = None
    """None makes a name from model, ranks and time."""
    storage: str | None = None
    """An Optuna storage URL; None is SQLite in the study folder."""
    resume: bool = False
    seed: int | None = None
    confirm_rounds: int = 5
    studies_folder: Path = Path("studies")


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """What came of it."""

    study: StudyView
    folder: Path
    record: Mapping[str, Any] | None
    """`record.json`; None if nothing fits."""


def tune(request: TuneRequest, progress: Progress) -> TuneResult:
    """Search, confirm and export.

    Raises:
        AutotuneError: something the user can mend; nothing was overwritten.
        KeyboardInterrupt: after the running trials were ended; `--resume` goes on.
    """
    base = read_ds_config(request.base) if request.base else {}
    shape = load_model_shape(request.model)
    device_kind = _device_kind(request)
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
    ceiling_bytes = _early_ceiling_bytes(request, device_kind)
    folder = study_folder(request.studies_folder, request.study, shape.name, request.gpus)
    storage = request.storage or f"sqlite:///{folder / STUDY_DB}"
    check_study(folder, storage, resume=request.resume, named=request.study is not None)
    setup = StudySetup(
        workload=workload,
        space=space,
        base=base,
        device_kind=device_kind,
        ceiling_bytes=ceiling_bytes,
        evaluator="measured",
        seed=secrets.randbelow(2**31) if request.seed is None else request.seed,
        environment={},
    )
    if request.resume:
        check_same_job(folder, storage, setup)
    _require_modelling_code(shape)
    if request.ray_address:
        _require_listener(request.ray_address)
    if base:
        _check_base(request, base, workload, progress)
    pool_request = PoolRequest(
        world_size=request.gpus,
        device_kind=device_kind,
        model_type=shape.model_type,
        ray_address=request.ray_address,
    )
    with Pool(pool_request) as pool, _interrupted_by_sigterm():
        ceiling_bytes = parse_ceiling(request.memory_ceiling, device_bytes=pool.device_bytes)
        setup = replace(
            setup,
            ceiling_bytes=ceiling_bytes,
            environment=describe_environment(
                pool.device_names,
                device_kind=device_kind,
                device_model=pool.device_model,
                driver=pool.driver,
            ),
        )
        opened = open_study(folder, storage, setup, resume=request.resume)
        evaluator = open_evaluator(
            setup.evaluator,
            pool,
            workload=workload,
            ceiling_bytes=ceiling_bytes,
            seed=opened.setup.seed,
            study_folder=folder,
        )
        screen = Screen(
            workload=workload,
            device=known_device(pool.device_model, memory_bytes=pool.device_bytes),
            ceiling_bytes=ceiling_bytes,
            expandable_segments=_has_expandable_segments(),
        )
        return run_study(
            opened, evaluator, folder, request=request, progress=progress, screen=screen
        )


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


def _device_kind(request: TuneRequest) -> str:
    """Return cuda or cpu: never the CPU unless that was asked for."""
    if request.device not in ("auto", "cuda", "cpu"):
        raise HardwareError(f"--device {request.device}: must be auto, cuda or cpu")
    return "cpu" if request.device == "cpu" else "cuda"


def _early_ceiling_bytes(request: TuneRequest, device_kind: str) -> int:
    """Return the ceiling before Ray is started; 0 where only the pool's devices tell.

    Raises:
        HardwareError: it is wrong, as far as this machine can tell.
    """
    device_bytes = 0
    num_cpus = machine.num_cpus()
    # With more ranks than CPUs the pool says what is there.
    if device_kind == "cpu" and request.ray_address is None and request.gpus <= num_cpus:
        num_slots = num_cpus // request.gpus * request.gpus
        device_bytes = machine.host_memory_bytes() // num_slots
    if device_bytes:
        return parse_ceiling(request.memory_ceiling, device_bytes=device_bytes)
    if request.memory_ceiling.strip().endswith("%"):
        if float(request.memory_ceiling.strip().rstrip("% ") or 0) > 100:
            raise HardwareError(
                f"--memory-ceiling {request.memory_ceiling}: is above the whole device; use 100% "
                "or less"
            )
        parse_ceiling(request.memory_ceiling, device_bytes=2**40)
        return 0
    return parse_bytes(request.memory_ceiling, where="--memory-ceiling")


def _require_listener(address: str) -> None:
    """Make sure that something answers at HOST:PORT: Ray itself would try for minutes.

    Raises:
        HardwareError: nothing does.
    """
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdigit():
        return  # `auto`, `ray://...`: Ray answers at once
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise HardwareError(
            f"--ray-address {address}: nothing answers there ({error}); start a cluster with "
            "`ray start --head`, or leave the option out to use this machine"
        ) from error


def _require_modelling_code(shape: ModelShape) -> None:
    """Make sure that transformers can build the model, without the seconds of an import.

    Raises:
        WorkloadError: it does not know the architecture.
    """
    found = importlib.util.find_spec("transformers")
    assert found is not None
    assert found.origin is not None
    models = Path(found.origin).parent / "models"
    kind = shape.model_type
    if not (models / kind / f"modeling_{kind}.py").is_file():
        known = [path.parent.name for path in models.glob("*/modeling_*.py")]
        near = difflib.get_close_matches(kind, known, n=3)
        raise WorkloadError(
            f"--model {shape.name}: model_type {kind!r}: transformers {version('transformers')} "
            f"has no such model" + (f"; did you mean {' or '.join(near)}?" if near else "")
        )


def _check_base(
    request: TuneRequest, base: Mapping[str, Any], workload: Workload, progress: Progress
) -> None:
    """Have the rules, and then the real DeepSpeed, judge the base config.

    Raises:
        ConfigError: it is refused; every error is named. Warnings are told.
    """
    # As the user gave it, not as we would run it: that would mend some faults.
    asked = resolve_auto(base, workload)
    if request.global_batch_size is not None or not BATCH_KEYS & asked.keys():
        batch = build_ds_config(base, workload, {})
        asked |= {key: batch[key] for key in BATCH_KEYS}
    findings = lint_for(workload, asked)
    errors = [f for f in findings if f.severity is Severity.ERROR]
    if errors:
        raise ConfigError(*(f"{request.base}: {_told(error)}" for error in errors))
    for finding in findings:
        if finding.severity is Severity.WARNING:
            progress.noted(f"{request.base}: warning: {_told(finding)}")
    answer = ask_deepspeed(asked, world_size=workload.world_size)
    if answer.refusal is not None:
        raise ConfigError(f"{request.base}: DeepSpeed refuses it: {answer.refusal}")


def _told(finding: Finding) -> str:
    way_out = "" if finding.suggestion is None else f"; {finding.suggestion}"
    return f"{finding.message}{way_out} [{finding.rule}]"
