"""Offload to the host, checked against the ZeRO stage and the optimizer."""

from collections.abc import Iterator

from autotune.job.cpu_threads import VARIABLE, launch_commands, threads_by_launcher
from autotune.job.launcher import Launcher
from autotune.lint.config_values import (
    ZERO,
    fault,
    flag,
    is_set,
    number,
    offload_device,
    place,
    value_of,
)
from autotune.lint.finding import Fix, RefusedBy, Severity
from autotune.lint.optimizers import configured_optimizer, is_deepspeed_cpu, is_from_torch
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_OPTIMIZER = f"{ZERO}.offload_optimizer"
_PARAM = f"{ZERO}.offload_param"
_RATIO = f"{_OPTIMIZER}.ratio"
_FORCE = "zero_force_ds_cpu_optimizer"
_MAPPED_BY_ACCELERATE = ("adam", "adamw", "adagrad", "lion")
"""accelerate/utils/deepspeed.py: map_pytorch_optim_to_deepspeed."""
_MAPPED_OPTIM = frozenset(
    (
        "adagrad",
        "adamw_hf",
        "adamw_torch",
        "adamw_torch_fused",
        "adamw_torch_npu_fused",
        "adamw_torch_xla",
        "lion_32bit",
        "paged_adamw_32bit",
        "paged_lion_32bit",
    )
)
"""Their names in TrainingArguments."""


@rule("offload-param-stage", Severity.WARNING)
def offload_param_stage(subject: Subject) -> Iterator[Fault]:
    """Parameter offload is configured below stage 3.

    Only stage 3 divides parameters among the ranks, and only it moves them to the host or to NVMe
    (`runtime/engine.py: _configure_zero_optimizer` passes `offload_param` to no other stage). Below
    it the section is accepted and ignored, and every rank holds all parameters.

    Suggestion: remove it, or use stage 3.
    """
    stage, device = subject.zero_stage, offload_device(subject, "param")
    if stage is None or stage == 3 or device in (None, "none"):
        return
    where = place(subject, _PARAM)
    yield fault(
        subject,
        _PARAM,
        f"acts at ZeRO stage 3 only, and the stage is {stage}",
        suggestion=f"remove it, or set {ZERO}.stage to 3 to offload parameters",
        fix=Fix(drop=frozenset({where})),
    )


@rule("offload-optimizer-stage", Severity.ERROR, refused_by=RefusedBy.INIT)
def offload_optimizer_stage(subject: Subject) -> Iterator[Fault]:
    """Optimizer offload is configured without ZeRO.

    `runtime/engine.py: zero_use_cpu_optimizer` checks only the device, not the stage: with stage 0
    DeepSpeedCPUAdam is built for parameters that stay on the GPU, and its first step asserts that
    they are on the CPU (`ops/adam/cpu_adam.py: step`). With an optimizer that runs anywhere
    (`torch_adam`, SGD) the section does nothing.

    Suggestion: use stage 1, 2 or 3, or remove the section.
    """
    device = offload_device(subject, "optimizer")
    if subject.zero_stage != 0 or device in (None, "none"):
        return
    name = configured_optimizer(subject)
    elsewhere = bool(value_of(subject, "optimizer.params.torch_adam")) or is_from_torch(name)
    severity = Severity.WARNING if elsewhere else None
    text = (
        "without ZeRO nothing is offloaded"
        if elsewhere
        else "without ZeRO the parameters stay on the GPU, where the CPU optimizer cannot step"
    )
    # Where the file does not set the stage, only the section is reported.
    for key in (_OPTIMIZER, *([f"{ZERO}.stage"] if is_set(subject, f"{ZERO}.stage") else [])):
        rule_text = text if key == _OPTIMIZER else f"{_OPTIMIZER} needs ZeRO stage 1, 2 or 3"
        yield fault(
            subject,
            key,
            rule_text,
            suggestion=f"set {ZERO}.stage to 1, 2 or 3, or remove {_OPTIMIZER}",
            severity=severity,
        )


@rule("nvme-stage", Severity.WARNING)
def nvme_stage(subject: Subject) -> Iterator[Fault]:
    """Optimizer offload to NVMe is configured below stage 3.

    Stages 1 and 2 only check whether the device is "none" (`runtime/zero/stage_1_and_2.py:
    __init__`): the optimizer state then stays in host memory, and NVMe is not used.

    Suggestion: use stage 3, or the device "cpu".
    """
    if subject.zero_stage in (1, 2) and offload_device(subject, "optimizer") == "nvme":
        yield fault(
            subject,
            f"{_OPTIMIZER}.device",
            f"ZeRO stage {subject.zero_stage} treats nvme as cpu: the state stays in host memory",
            suggestion=f'set {ZERO}.stage to 3 for NVMe, or the device to "cpu"',
        )


@rule("partial-offload-stage", Severity.ERROR, refused_by=RefusedBy.PARSE)
def partial_offload_stage(subject: Subject) -> Iterator[Fault]:
    """Partial optimizer offload is configured below stage 3.

    `runtime/zero/config.py: offload_ratio_check` asserts stage 3 where `offload_optimizer.ratio` is
    below 1, whatever the device.

    Suggestion: remove `ratio`, or use stage 3.
    """
    ratio, stage = number(subject, _RATIO), subject.zero_stage
    if stage is not None and stage < 3 and ratio is not None and 0 <= ratio < 1:
        yield fault(
            subject,
            _RATIO,
            f"a ratio below 1 needs ZeRO stage 3, and the stage is {stage}",
            suggestion=f"remove it (all of the state is offloaded), or set {ZERO}.stage to 3",
        )


@rule("partial-offload-optimizer", Severity.ERROR, refused_by=RefusedBy.INIT)
def partial_offload_optimizer(subject: Subject) -> Iterator[Fault]:
    """Partial optimizer offload is configured without DeepSpeed's CPU Adam.

    `runtime/zero/stage3.py: __init__` asserts DeepSpeedCPUAdam where `offload_optimizer.ratio` is
    not 1: the part that stays on the GPU is stepped with a copy of its settings.

    Suggestion: set `optimizer.type` to "AdamW" without `torch_adam`, or remove the ratio.
    """
    ratio = number(subject, _RATIO)
    if subject.zero_stage != 3 or ratio is None or not 0 <= ratio < 1:
        return
    if offload_device(subject, "optimizer") in (None, "none"):
        return
    name = configured_optimizer(subject)
    if name is None:
        return
    torch_adam = bool(value_of(subject, "optimizer.params.torch_adam"))
    if name not in ("adam", "adamw") or torch_adam:
        yield fault(
            subject,
            _RATIO,
            "a ratio below 1 needs DeepSpeed's Adam on the CPU",
            suggestion='set optimizer.type to "AdamW" without torch_adam, or remove the ratio',
        )


@rule("offload-client-optimizer", Severity.ERROR, refused_by=RefusedBy.INIT)
def offload_client_optimizer(subject: Subject) -> Iterator[Fault]:
    """Offload is configured for an optimizer that the program creates.

    With offload `runtime/engine.py: _configure_optimizer` takes only DeepSpeedCPUAdam and
    DeepSpeedCPULion from the program, unless `zero_force_ds_cpu_optimizer` is false. Accelerate
    replaces it with DeepSpeed's optimizer (`accelerate/utils/deepspeed.py:
    map_pytorch_optim_to_deepspeed`), and with DeepSpeedCPUAdam where it has no equivalent, such as
    for the Trainer's adafactor or an 8-bit Adam.

    Suggestion: create DeepSpeedCPUAdam, write an `optimizer` section, or set
    `zero_force_ds_cpu_optimizer` to false (slow).
    """
    client = subject.launch.client_optimizer or _trainers_optimizer(subject)
    if client is None or offload_device(subject, "optimizer") in (None, "none"):
        return
    if value_of(subject, _FORCE) is not True or is_deepspeed_cpu(client):
        return
    if subject.launch.launcher == Launcher.HF:
        if client.rsplit(".", 1)[-1].lower() not in _MAPPED_BY_ACCELERATE:
            yield fault(
                subject,
                _OPTIMIZER,
                f"Accelerate trains with DeepSpeedCPUAdam in place of {client}",
                suggestion=f"remove it, or set {_FORCE} to false to keep your optimizer (slow)",
                severity=Severity.WARNING,
            )
        return
    for key in (_OPTIMIZER, _FORCE):
        yield fault(
            subject,
            key,
            f"{client} of the program is not DeepSpeedCPUAdam, which offload requires",
            suggestion="build deepspeed.ops.adam.DeepSpeedCPUAdam, or write an optimizer section, "
            f"or set {_FORCE} to false (slow)",
        )


def _trainers_optimizer(subject: Subject) -> str | None:
    """Return `optim` where the Trainer builds the optimizer and Accelerate has no equivalent."""
    arguments = subject.launch.hf_args
    if arguments is None or subject.section("optimizer") is not None:
        return None
    optim = arguments.get("optim")
    return optim if isinstance(optim, str) and optim not in _MAPPED_OPTIM else None


@rule("offload-lamb", Severity.ERROR, refused_by=RefusedBy.INIT)
def offload_lamb(subject: Subject) -> Iterator[Fault]:
    """Offload is configured with Lamb.

    DeepSpeed's Lamb is a CUDA kernel that refuses tensors on the CPU
    (`csrc/lamb/fused_lamb_cuda.cpp: lamb`), and has no CPU version.

    Suggestion: remove the offload, or set `optimizer.type` to "AdamW".
    """
    offloaded = offload_device(subject, "optimizer") in ("cpu", "nvme")
    if offloaded and configured_optimizer(subject) == "lamb":
        yield fault(
            subject,
            _OPTIMIZER,
            "Lamb runs on the GPU only",
            suggestion='remove it, or set optimizer.type to "AdamW"',
        )


@rule("offload-cpu-threads", Severity.WARNING)
def offload_cpu_threads(subject: Subject) -> Iterator[Fault]:
    """The optimizer steps on the CPU, and the launcher leaves each rank one thread.

    DeepSpeedCPUAdam runs on the threads that `OMP_NUM_THREADS` allows. Where it is not set,
    `torchrun` with several ranks on a node and `accelerate launch` set it to 1 (torch:
    `distributed/run.py: config_from_args`; accelerate: `commands/launch.py:
    _validate_launch_command`). With 1.3B parameters on one H200 a step then takes 3.3 s, with 8
    threads 0.9 s. Not judged where `--cpu-threads` is given, or the launcher is unknown.

    Suggestion: set `OMP_NUM_THREADS` to the cores of a node divided by its ranks, and give
    `--cpu-threads`.
    """
    launch = subject.launch
    if launch.started_by is None or launch.cpu_threads is not None:
        return
    device = offload_device(subject, "optimizer")
    if subject.zero_stage not in (1, 2, 3) or device not in ("cpu", "nvme"):
        return
    local_ranks = launch.gpus // (launch.nodes or 1) if launch.gpus else 2
    # 2 represents any number above 1: only whether it is 1 thread matters.
    if threads_by_launcher(launch.started_by, cores=2, local_ranks=local_ranks) > 1:
        return
    how = launch_commands("N")[launch.started_by]
    yield fault(
        subject,
        _OPTIMIZER,
        f"{launch.started_by} sets {VARIABLE}=1 unless it is given, and the optimizer steps on "
        "the CPU: one thread a rank makes it several times slower",
        suggestion=f"launch with `{how}`, N being the cores of a node divided by its ranks, and "
        "give --cpu-threads N",
    )


@rule("super-offload", Severity.ERROR, refused_by=RefusedBy.INIT)
def super_offload(subject: Subject) -> Iterator[Fault]:
    """SuperOffload is configured without what it needs.

    `runtime/superoffload/superoffload_stage3.py: __init__` steps with a CPU Adam in a separate
    process and reads betas, eps and amsgrad of the optimizer; below stage 3 `super_offload` is
    ignored.

    Suggestion: use stage 3 with AdamW, or remove it.
    """
    key = f"{_OPTIMIZER}.super_offload"
    if not flag(subject, key):
        return
    name = configured_optimizer(subject)
    if subject.zero_stage in (0, 1, 2):
        yield fault(
            subject,
            key,
            f"acts at ZeRO stage 3 only, and the stage is {subject.zero_stage}",
            suggestion=f"remove it, or set {ZERO}.stage to 3",
            severity=Severity.WARNING,
        )
    elif subject.zero_stage == 3 and name not in (None, "adam", "adamw"):
        yield fault(
            subject,
            key,
            "steps with Adam only",
            suggestion='set optimizer.type to "AdamW", or remove it',
        )


RULES = (
    offload_param_stage,
    offload_optimizer_stage,
    nvme_stage,
    partial_offload_stage,
    partial_offload_optimizer,
    offload_client_optimizer,
    offload_lamb,
    offload_cpu_threads,
    super_offload,
)
