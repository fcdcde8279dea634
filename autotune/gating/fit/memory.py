"""The memory answer as findings of the gate: what does not fit, why, and which keys to change."""

from collections.abc import Iterator, Mapping

from autotune.gating.fit.performance import PERFORMANCE_RULES, performance_findings
from autotune.gating.fit.remedies import suggestion
from autotune.gating.result import DEVICE_MEMORY
from autotune.job.batch import MICRO_BATCH
from autotune.job.ceiling import GIB
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule import Fault, located
from autotune.lint.rule_info import RuleInfo
from autotune.lint.subject import Subject
from autotune.planning.memory_answer import MemoryAnswer, format_odds
from autotune.planning.planned_job import PlannedJob
from autotune.predict.memory.estimate import HostEstimate
from autotune.predict.memory.fit import ACTIVATION_ITEMS, SURE, UNLIKELY, Answer, Fit
from autotune.predict.training_job import Training
from autotune.predict.zero_settings import ZeroSettings

HOST_MEMORY = "host-memory"
_STAGE = "zero_optimization.stage"
_OFFLOAD_OPTIMIZER = "zero_optimization.offload_optimizer"
_OFFLOAD_PARAM = "zero_optimization.offload_param"
_STATES = (
    "master_weights",
    "moments",
    "gradients",
    "gradient_partition",
    "step_gradients",
    "norm_scratch",
)
_ITEMS_OF_KEY: Mapping[str, tuple[str, ...]] = {
    _OFFLOAD_PARAM: ("weights", "frozen_weights", "secondary_weights"),
    _OFFLOAD_OPTIMIZER: _STATES,
    "zero_optimization.reduce_bucket_size": ("reduce_bucket", "reduction_copy", "offload_buffer"),
    "zero_optimization.stage3_max_live_parameters": (
        "gathered_weights",
        "gather_buffer",
        "persistent_weights",
    ),
    MICRO_BATCH: ACTIVATION_ITEMS,
}
"""What each key makes smaller."""
_HOST_PARAM_ITEMS = ("weights", "weight_buffers")
_MIN_HOST_SHARE = 0.1
"""A smaller share of the host's estimate is not reported."""

RULE_INFOS: tuple[RuleInfo, ...] = (
    RuleInfo(
        id=DEVICE_MEMORY,
        severity=Severity.ERROR,
        text="""A rank needs more memory than its device has.

The memory model replays one rank's tensors through a model of torch's caching allocator (see
`autotune plan`) and adds the memory outside the allocator. The limit is `--memory-ceiling`, or the
whole device if no ceiling is given. An error means that the job does not fit, whatever the missing
facts are. A warning means that it is near the edge (the odds are printed) or not judged:
the answer depends on activation checkpointing, the sequence length or the micro batch, and that is
not given. The field is the key that the largest items depend on.

Suggestion: the changes printed with the finding, cheapest first; all keep the global batch.""",
    ),
    RuleInfo(
        id=HOST_MEMORY,
        severity=Severity.ERROR,
        text="""The ranks of a node need more memory than the node has.

Offload moves 4 bytes of master weights, 4 of gradients and 8 of moments per parameter to the host.
Every rank pins its own buffers, rounded up to a power of two. Loading the model is not counted.

Suggestion: more nodes, less offload, or `pin_memory: false`, which does not round up.""",
    ),
    *PERFORMANCE_RULES,
)
"""The rules that `memory_findings` applies."""


def memory_findings(subject: Subject, answer: MemoryAnswer) -> Iterator[Finding]:
    """Yield what does not fit; if everything fits, settings that cost speed for no benefit.

    Args:
        subject: the config and its launch.
        answer: from `autotune.planning.memory_answer.judge_memory`.
    """
    job, shown = answer.job, answer.shown
    if job is None or shown is None:
        return
    yield from _device_findings(subject, answer, job, shown)
    yield from _host_findings(subject, job, shown)
    if all(fit.answer is Answer.FITS for fit in answer.fits):
        yield from performance_findings(subject, job)


def _device_findings(
    subject: Subject, answer: MemoryAnswer, job: PlannedJob, shown: Fit
) -> Iterator[Finding]:
    fits = {fit.device_answer for fit in answer.fits} == {Answer.FITS}
    sure = shown.device_odds >= SURE and not shown.is_pressed
    if fits and answer.answer is not Answer.NOT_JUDGED and sure:
        return
    does_not_fit = answer.answer is Answer.DOES_NOT_FIT and not fits
    severity = Severity.ERROR if does_not_fit else Severity.WARNING
    message = _device_message(answer, job, shown)
    # With the first field only: it makes the whole job fit.
    fix = None if fits else suggestion(job, shown)
    if answer.settle:
        settling = f"give {' and '.join(answer.settle)}"
        fix = settling if fix is None else f"{settling}\n{fix}"
    for field in ("",) if fits and answer.settle else _device_fields(job, shown):
        fault = Fault(field=field, message=message, suggestion=fix)
        yield located(subject, fault, rule=DEVICE_MEMORY, severity=severity)
        fix = None


def _host_findings(subject: Subject, job: PlannedJob, shown: Fit) -> Iterator[Finding]:
    if shown.host_odds >= SURE:
        return
    does_not_fit = shown.host_answer is Answer.DOES_NOT_FIT
    severity = Severity.ERROR if does_not_fit else Severity.WARNING
    fix = suggestion(job, shown) if shown.device_answer is Answer.FITS else None
    for field in _host_fields(shown.estimate.host):
        fault = Fault(field=field, message=_host_message(shown), suggestion=fix)
        yield located(subject, fault, rule=HOST_MEMORY, severity=severity)
        fix = None


def _device_message(answer: MemoryAnswer, job: PlannedJob, shown: Fit) -> str:
    """Return claim, prediction, limit, largest items and assumptions in one sentence."""
    device, limit = shown.estimate.device, f"{job.limit_bytes / GIB:.1f} GiB"
    size = (
        f"predicted {shown.predicted_bytes / GIB:.1f} GiB a rank "
        f"({shown.low_bytes / GIB:.1f} to {shown.high_bytes / GIB:.1f})"
    )
    available = f"{job.device.name} has {limit}"
    if job.site.ceiling_is_given:
        available = f"the ceiling on {job.device.name} is {limit}"
    largest = sorted(device.items.items(), key=lambda item: -item[1])[:2]
    most = ", ".join(f"{name.replace('_', ' ')} {size_ / GIB:.1f}" for name, size_ in largest)
    assumed = f" (assumed: {'; '.join(answer.assumed)})" if answer.assumed else ""
    return (
        f"{_claim(answer, shown)}: {size}, and {available}; most is {most}, in the "
        f"{device.part}{assumed}"
    )


def _claim(answer: MemoryAnswer, shown: Fit) -> str:
    settings = _settings_text(shown.training)
    if answer.answer is Answer.DOES_NOT_FIT:
        even = " even" if answer.job is not None and len(answer.job.settings) > 1 else ""
        odds = f", near the edge: the odds that it runs are {format_odds(shown.device_odds)}"
        near = odds if shown.device_odds > UNLIKELY else ""
        return f"device memory does not suffice{even} {settings}{near}"
    fitting = next((fit for fit in answer.fits if fit.device_answer is Answer.FITS), None)
    if fitting is not None and fitting is not shown:
        need = f"{fitting.predicted_bytes / GIB:.1f} GiB"
        return f"fits only {_settings_text(fitting.training)} (predicted {need}); {settings}"
    if answer.answer is Answer.NOT_JUDGED:
        return answer.reason or "memory is not judged"
    pressed = ", by giving back the allocator's cache in every step" if shown.is_pressed else ""
    odds = format_odds(shown.device_odds)
    return f"near the edge: the odds that it runs are {odds}{pressed}"


def _settings_text(training: Training) -> str:
    """Return the settings of the model as a phrase."""
    with_or_without = "with" if training.activation_checkpointing else "without"
    checkpointing = f"{with_or_without} activation checkpointing"
    if training.trained_on_top:
        return "with the trained parameters on top of the frozen ones"
    if training.trainable_parameters is not None:
        return f"with adapters in every layer and {checkpointing}"
    return checkpointing


def _host_message(fit: Fit) -> str:
    host = fit.estimate.host
    assert host.ceiling_bytes is not None
    verb = "does not suffice" if fit.host_answer is Answer.DOES_NOT_FIT else "may not suffice"
    low, middle, high = (
        host.total_bytes * (1 + error) / GIB for error in (-host.margin, 0, host.margin)
    )
    return (
        f"host memory {verb}: predicted {middle:.0f} GiB a node ({low:.0f} to {high:.0f}), "
        f"{host.local_ranks} x {host.rank_bytes / GIB:.1f} GiB for its ranks, and the node has "
        f"{host.ceiling_bytes / GIB:.0f} GiB"
    )


def _device_fields(job: PlannedJob, fit: Fit) -> tuple[str, ...]:
    """Return the keys that device memory depends on, the most effective first.

    The key of the largest items, and the micro batch if the job fits with one sequence. At stage 3
    that is the micro batch alone: states cannot be sharded further.
    """
    items = fit.estimate.device.items
    sizes = {key: sum(items.get(name, 0) for name in names) for key, names in _ITEMS_OF_KEY.items()}
    field = _effective_key(max(sizes, key=lambda key: sizes[key]), fit.training.zero)
    if field == MICRO_BATCH or not _fits_with_one_sequence(job, fit):
        return (field,)
    return (MICRO_BATCH, field) if field == _STAGE else (MICRO_BATCH,)


def _effective_key(key: str, zero: ZeroSettings) -> str:
    """Return the key to change: of weights and states, the stage, then what is not offloaded."""
    if key not in (_OFFLOAD_OPTIMIZER, _OFFLOAD_PARAM):
        return key
    if zero.stage < 3:
        return _STAGE
    return _OFFLOAD_PARAM if zero.offload_optimizer.enabled else _OFFLOAD_OPTIMIZER


def _fits_with_one_sequence(job: PlannedJob, fit: Fit) -> bool:
    if fit.training.micro_batch_size == 1:
        return False
    device = job.screen(job.training(fit.settings, {MICRO_BATCH: 1})).device
    return device.peak_allocated_bytes + device.outside_bytes <= job.limit_bytes


def _host_fields(host: HostEstimate) -> tuple[str, ...]:
    """Return the offload sections that host memory depends on."""
    param = sum(host.items.get(name, 0) for name in _HOST_PARAM_ITEMS)
    process = host.items.get("process", 0)
    sizes = {_OFFLOAD_OPTIMIZER: host.rank_bytes - param - process, _OFFLOAD_PARAM: param}
    found = tuple(key for key, size in sizes.items() if size >= _MIN_HOST_SHARE * host.rank_bytes)
    return found or ("zero_optimization",)
