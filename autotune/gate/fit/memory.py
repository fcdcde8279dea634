"""Does the job fit: device and host, by the memory model.

An error needs a job that is over at the low end of the model's error, whatever was left unsaid;
what may or may not fit is a warning.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from autotune.errors import AutotuneError, NotJudgedError
from autotune.gate.fit.cheapest_remedies import suggestion
from autotune.gate.fit.job import Job, read_job
from autotune.gate.fit.memory_fit import Judged, judge_estimate
from autotune.gate.fit.memory_messages import device_words, host_words
from autotune.gate.fit.offending_keys import device_fields, host_fields
from autotune.gate.fit.performance import PERFORMANCE_RULES, performance_findings
from autotune.gate.fit.recorded import Recorded
from autotune.gate.located import located
from autotune.gate.result import DEVICE_MEMORY
from autotune.job.device import Device
from autotune.job.model_shape import ModelShape
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule import Fault
from autotune.lint.rule_info import RuleInfo
from autotune.lint.subject import Subject
from autotune.predict.memory.verdict import Room

HOST_MEMORY = "host-memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySetting:
    """What memory is judged by, beside the subject and its launch; None is not known."""

    shape: ModelShape | None = None
    """The model, or an assumed one where only its size is known."""
    device: Device | None = None
    """What every rank runs on; all of its memory may be used."""
    host_bytes: int | None = None
    """Memory of one node."""
    not_judged: str | None = None
    """Why the model cannot be judged, where that is known before its shape."""
    recorded: Recorded = field(default_factory=Recorded)
    """How the record's runs were set up: taken where the launch does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryJudgement:
    """What the memory model says."""

    findings: tuple[Finding, ...] = ()
    memory: dict[str, Any] | None = None
    """As `autotune plan --json` prints it, and `assumptions`: what nobody said; None where nothing
    could be predicted."""
    reason: str | None = None
    """Why there is no memory; None if there is."""


RULE_INFOS: tuple[RuleInfo, ...] = (
    RuleInfo(
        id=DEVICE_MEMORY,
        severity=Severity.ERROR,
        text="""A rank needs more memory than its device has.

The memory model replays one rank's tensors through a model of torch's caching allocator (see
`autotune plan`) and adds what lies outside the allocator. An error is over at the low end of the
model's error; a warning may or may not fit, or fits only with activation checkpointing where
nobody said whether the model has it. What was not said is taken from the record of `--baseline`,
else at its leanest: a short sequence, a micro batch of one. What a verdict rests on is printed
with it. The field is what the largest items of the estimate hang on.

The way out: the changes printed with the finding, cheapest first; all keep the global batch.""",
    ),
    RuleInfo(
        id=HOST_MEMORY,
        severity=Severity.ERROR,
        text="""The ranks of a node need more memory than the node has.

Offload moves 4 bytes of master weights, 4 of gradients and 8 of moments a parameter to the host,
pinned buffers rounded up to a power of two, once for every rank of the node. Loading the model is
not counted.

The way out: more nodes, less offload, or `pin_memory: false`, which rounds nothing up.""",
    ),
    *PERFORMANCE_RULES,
)
"""Of the rules that `judge_memory` applies."""


def judge_memory(subject: Subject, *, setting: MemorySetting) -> MemoryJudgement:
    """Predict the memory of a config and judge it.

    Args:
        subject: the config and its launch.
        setting: the model's shape, the device, the host and the record.
    """
    if setting.not_judged is not None:
        return MemoryJudgement(reason=setting.not_judged)
    try:
        job = read_job(
            subject,
            shape=setting.shape,
            device=setting.device,
            host_bytes=setting.host_bytes,
            recorded=setting.recorded,
        )
    except NotJudgedError as reason:
        return MemoryJudgement(reason=str(reason))
    try:
        judged = _judge(job)
        findings = tuple(_findings(subject, job, judged))
        if not findings:
            findings = tuple(performance_findings(subject, job))
    except OverflowError:
        return MemoryJudgement(reason="memory is not judged: a size is larger than any number")
    except NotJudgedError as reason:
        return MemoryJudgement(reason=str(reason))
    except AutotuneError as error:  # a model that has to be traced, and cannot be
        return MemoryJudgement(reason=f"memory is not judged: {error.faults[0]}")
    memory = _telling(judged).estimate.to_json() | {"assumptions": list(job.assumed)}
    return MemoryJudgement(findings=findings, memory=memory)


def _judge(job: Job) -> list[Judged]:
    """Judge what may be set in the model, as far as the verdict needs it; the leanest first."""
    leanest, *others = job.settings
    if len(others) != 1 or others[0].trained_on_top:
        return [judge_estimate(job, settings) for settings in job.settings]
    # The other needs more of everything: where it fits, the leanest does.
    largest, known = others[0], None
    device = job.screen(job.training(largest)).device
    if device.peak_allocated_bytes + device.outside_bytes <= job.device.memory_bytes:
        known = judge_estimate(job, largest)
        if known.device is Room.FITS:
            return [known]
    first = judge_estimate(job, leanest)
    if first.device is Room.TOO_LARGE:
        return [first]
    return [first, known or judge_estimate(job, largest)]


def _telling(judged: list[Judged]) -> Judged:
    """Return the estimate that decides: the smallest if all are over, else the largest."""
    over = all(one.device is Room.TOO_LARGE for one in judged)
    pick = min if over else max
    return pick(judged, key=lambda one: one.estimate.device.peak_allocated_bytes)


def _findings(subject: Subject, job: Job, judged: list[Judged]) -> Iterator[Finding]:
    rooms = {one.device for one in judged}
    if rooms != {Room.FITS}:
        telling = _telling(judged)
        severity = Severity.ERROR if rooms == {Room.TOO_LARGE} else Severity.WARNING
        why = device_words(job, judged, telling)
        # What is taken at its leanest makes an error no weaker; what a record says may.
        resting_on = job.assumed if severity is Severity.WARNING else job.as_recorded
        if resting_on:
            why += f" (assuming {'; '.join(resting_on)})"
        # With the first field only: it makes the whole job fit.
        way_out: str | None = suggestion(job, telling)
        for field in device_fields(job, telling):
            fault = Fault(field=field, message=why, suggestion=way_out)
            yield located(subject, fault, rule=DEVICE_MEMORY, severity=severity)
            way_out = None
    # Host memory does not depend on what is set in the model.
    host = judged[0]
    if host.host is not Room.FITS:
        severity = Severity.ERROR if host.host is Room.TOO_LARGE else Severity.WARNING
        way_out = suggestion(job, host) if rooms == {Room.FITS} else None
        for field in host_fields(host.estimate.host):
            fault = Fault(field=field, message=host_words(host), suggestion=way_out)
            yield located(subject, fault, rule=HOST_MEMORY, severity=severity)
            way_out = None
