"""Checks that need no pool: run before anything starts."""

import socket

from autotune.ds_config.auto import resolve_auto
from autotune.ds_config.build import BATCH_KEYS, build_ds_config
from autotune.errors import ConfigError, HardwareError, WorkloadError
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.evaluate.options import AUTO
from autotune.gating.deepspeed_parser import ask_deepspeed
from autotune.job.batch import MICRO_BATCH, TRAIN_BATCH
from autotune.job.ceiling import parse_bytes, parse_ceiling
from autotune.job.resolve import ResolvedJob
from autotune.job.site import DEFAULT_CEILING
from autotune.job.workload import Workload
from autotune.lint.finding import Finding, Severity
from autotune.pool import machine
from autotune.predict.gpu_counts import MAX_GPUS
from autotune.search.prelaunch_lint import lint_for
from autotune.search.progress import Progress
from autotune.tuning.request import TuneRequest

_CONNECT_S = 5.0


def device_kind_of(request: TuneRequest) -> str:
    """Return cuda or cpu: the CPU only if `--device cpu` is given."""
    if request.device not in ("auto", "cuda", "cpu"):
        raise HardwareError(f"--device {request.device}: must be auto, cuda or cpu")
    return "cpu" if request.device == "cpu" else "cuda"


def check_modelled(request: TuneRequest) -> None:
    """Refuse options that the evaluator would ignore.

    Raises:
        HardwareError: such options are given; all are named.
    """
    if request.evaluator != EvaluatorKind.MODELLED:
        if request.job.devices is not None:
            raise HardwareError(
                f"--devices {request.job.devices}: is for --evaluator modelled; trials run on the "
                "devices of the pool, so leave it out"
            )
        return
    nothing_runs = "nothing runs with --evaluator modelled, so leave it out"
    faults = []
    gpus = request.job.gpus
    if gpus is not None and gpus > MAX_GPUS:
        faults.append(f"--gpus {gpus}: the models predict at most {MAX_GPUS}")
    if request.device == "cpu":
        faults.append(f"--device cpu: the speed model knows GPUs, and {nothing_runs}")
    if request.ray_address is not None:
        faults.append(f"--ray-address {request.ray_address}: {nothing_runs}")
    if not request.timed:
        faults.append(f"--untimed: {nothing_runs}; modelled collectives always take their time")
    if faults:
        raise HardwareError(*faults)


def check_trainable_whole(resolved: ResolvedJob) -> None:
    """Refuse jobs that trials cannot run: a split model, or an assumed part of one.

    Raises:
        WorkloadError: the job has such options; all are named.
    """
    job, meant_for = resolved.job, "is for plan and gate"
    faults = [
        f"--{name.replace('_', '-')} {value}: {meant_for}; trials are data-parallel and train the "
        "whole model, so leave it out"
        for name, value in (
            ("tensor_parallel", job.tensor_parallel),
            ("pipeline_stages", job.pipeline_stages),
            ("trainable_params", job.trainable_params),
        )
        if value is not None and (name == "trainable_params" or value > 1)
    ]
    if job.params is not None:
        faults.append(f"--params {job.params:g}: {meant_for}; name a --model that can be trained")
    if faults:
        raise WorkloadError(*faults)


def check_target(request: TuneRequest, gpus: int) -> None:
    """Check that `--target-gpus` can be predicted.

    Raises:
        HardwareError: it is not above `--gpus`, too large, or of CPU ranks.
    """
    target = request.target_gpus
    if target is None:
        return
    if not gpus < target <= MAX_GPUS:
        raise HardwareError(
            f"--target-gpus {target}: must be more than --gpus {gpus} and at most {MAX_GPUS}; a "
            "study of --gpus needs no prediction for as many"
        )
    if request.device == "cpu":
        raise HardwareError(
            f"--target-gpus {target}: the speed model knows GPUs, not CPU ranks; leave "
            "--device cpu out, or the target"
        )


def early_ceiling_bytes(request: TuneRequest, resolved: ResolvedJob, device_kind: str) -> int:
    """Return the ceiling before Ray starts; 0 where it depends on the pool's devices.

    Raises:
        HardwareError: it is above what this machine has for a CPU rank.
    """
    site = resolved.site
    if request.evaluator == EvaluatorKind.MODELLED:
        assert site.ceiling_bytes is not None
        return site.ceiling_bytes
    ceiling = resolved.job.memory_ceiling or DEFAULT_CEILING
    num_cpus = machine.num_cpus()
    assert site.gpus is not None
    group_size = 1 if request.evaluator == EvaluatorKind.EMULATED else site.gpus
    # With more ranks than CPUs the pool reports the shortage; with auto the study decides.
    here = device_kind == "cpu" and request.ray_address is None and group_size <= num_cpus
    if here and not (request.evaluator == AUTO and request.resume):
        num_slots = num_cpus // group_size * group_size
        return parse_ceiling(ceiling, device_bytes=machine.host_memory_bytes() // num_slots)
    return 0 if ceiling.strip().endswith("%") else parse_bytes(ceiling, where="--memory-ceiling")


def require_listener(address: str) -> None:
    """Check that a server listens at HOST:PORT: Ray itself would try for minutes.

    Raises:
        HardwareError: none listens.
    """
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdigit():
        return  # `auto`, `ray://...`: Ray reports a failure at once
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise HardwareError(
            f"--ray-address {address}: nothing answers there ({error}); start a cluster with "
            "`ray start --head`, or leave the option out to use this machine"
        ) from error


def check_base(
    request: TuneRequest, resolved: ResolvedJob, workload: Workload, progress: Progress
) -> None:
    """Check the base config by the rules, and then by the installed DeepSpeed.

    Raises:
        ConfigError: it is refused; every error is named. Warnings are noted.
    """
    base = resolved.subject.config
    # The config as given: the config of a trial would hide some faults.
    asked = resolve_auto(base, workload)
    if resolved.job.global_batch_size is not None or not asked.keys() & {TRAIN_BATCH, MICRO_BATCH}:
        batch = build_ds_config(base, workload, {})
        asked |= {key: batch[key] for key in BATCH_KEYS}
    findings = lint_for(workload, asked)
    errors = [f for f in findings if f.severity is Severity.ERROR]
    if errors:
        raise ConfigError(*(f"{request.base}: {_text(error)}" for error in errors))
    for finding in findings:
        if finding.severity is Severity.WARNING:
            progress.noted(f"{request.base}: warning: {_text(finding)}")
    answer = ask_deepspeed(asked, world_size=workload.world_size)
    if answer.refusal is not None:
        raise ConfigError(f"{request.base}: DeepSpeed refuses it: {answer.refusal}")


def _text(finding: Finding) -> str:
    suggestion = "" if finding.suggestion is None else f"; {finding.suggestion}"
    return f"{finding.message}{suggestion} [{finding.rule}]"
