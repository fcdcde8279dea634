"""What the answer about memory means for the gate: findings, with what would fix them."""

from collections.abc import Iterator

from autotune.gate.fit.cheapest_remedies import suggestion
from autotune.gate.fit.memory_messages import device_message, host_message
from autotune.gate.fit.offending_keys import device_fields, host_fields
from autotune.gate.fit.performance import PERFORMANCE_RULES, performance_findings
from autotune.gate.result import DEVICE_MEMORY
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule import Fault, located
from autotune.lint.rule_info import RuleInfo
from autotune.lint.subject import Subject
from autotune.plan.memory_answer import MemoryAnswer
from autotune.plan.planned_job import PlannedJob
from autotune.predict.memory.fit import SURE, Answer, Fit

HOST_MEMORY = "host-memory"

RULE_INFOS: tuple[RuleInfo, ...] = (
    RuleInfo(
        id=DEVICE_MEMORY,
        severity=Severity.ERROR,
        text="""A rank needs more memory than its device has.

The memory model replays one rank's tensors through a model of torch's caching allocator (see
`autotune plan`) and adds what lies outside the allocator. The limit is `--memory-ceiling`, or the
whole device where none is given. An error does not fit, whatever the job leaves open. A warning is
near the edge, with the odds, or is not judged: it fits only with activation checkpointing where
that is not known, or with a sequence length or micro batch that nobody gave. The field is what the
largest items depend on.

Suggestion: the changes printed with the finding, cheapest first; all keep the global batch.""",
    ),
    RuleInfo(
        id=HOST_MEMORY,
        severity=Severity.ERROR,
        text="""The ranks of a node need more memory than the node has.

Offload moves 4 bytes of master weights, 4 of gradients and 8 of moments a parameter to the host,
pinned buffers rounded up to a power of two, once for every rank of the node. Loading the model is
not counted.

Suggestion: more nodes, less offload, or `pin_memory: false`, which rounds nothing up.""",
    ),
    *PERFORMANCE_RULES,
)
"""Of the rules that `memory_findings` applies."""


def memory_findings(subject: Subject, answer: MemoryAnswer) -> Iterator[Finding]:
    """Yield what is wrong with the memory of a job, else what it pays for needlessly.

    Args:
        subject: the config and its launch.
        answer: of `autotune.plan.memory_answer.judge_memory`.
    """
    job, shown = answer.job, answer.shown
    if job is None or shown is None:
        return
    found = [*_device_findings(subject, answer, job, shown), *_host_findings(subject, job, shown)]
    yield from found
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
    why = device_message(answer, job, shown)
    # With the first field only: it makes the whole job fit.
    fix = None if fits else suggestion(job, shown)
    if answer.settle:
        settling = f"give {' and '.join(answer.settle)}"
        fix = settling if fix is None else f"{settling}\n{fix}"
    fields = ("",) if fits and answer.settle else device_fields(job, shown)
    for field in fields:
        fault = Fault(field=field, message=why, suggestion=fix)
        yield located(subject, fault, rule=DEVICE_MEMORY, severity=severity)
        fix = None


def _host_findings(subject: Subject, job: PlannedJob, shown: Fit) -> Iterator[Finding]:
    if shown.host_odds >= SURE:
        return
    does_not_fit = shown.host_answer is Answer.DOES_NOT_FIT
    severity = Severity.ERROR if does_not_fit else Severity.WARNING
    fix = suggestion(job, shown) if shown.device_answer is Answer.FITS else None
    for field in host_fields(shown.estimate.host):
        fault = Fault(field=field, message=host_message(shown), suggestion=fix)
        yield located(subject, fault, rule=HOST_MEMORY, severity=severity)
        fix = None
