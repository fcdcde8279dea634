"""The steps of the gate: read, lint, predict, parse, compare, measure, drop accepted findings."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.ds_config.fields.version import table_version
from autotune.errors import ConfigError
from autotune.gating.accepted import read_accepted, split_accepted
from autotune.gating.deepspeed_parser import as_deepspeed_sees_it, ask_deepspeed, deepspeed_refuses
from autotune.gating.fit.memory import memory_findings
from autotune.gating.fit.precision import precision_findings
from autotune.gating.inputs import read_config, read_subject
from autotune.gating.request import GateRequest
from autotune.gating.result import DeepSpeedSource, GateResult
from autotune.gating.rules import require_rules
from autotune.job.resolve import ResolvedJob, resolve_job
from autotune.lint.check import lint, verdict_of
from autotune.lint.document.document import Document
from autotune.lint.finding import Finding, Severity, Verdict
from autotune.lint.subject import Subject
from autotune.planning.memory_answer import MemoryAnswer, judge_memory
from autotune.predict.memory.fit import Answer

if TYPE_CHECKING:
    from autotune.gating.baseline.measure import Measured
    from autotune.study.record import Record

_ORDER = {severity: place for place, severity in enumerate(Severity)}
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Control characters without tab and line break, surrogates and non-characters."""
_NOT_READ = "the config cannot be read"


@dataclass(slots=True, kw_only=True)
class _Judged:
    """Results of the steps so far."""

    findings: list[Finding] = field(default_factory=list)
    answer: MemoryAnswer = field(
        default_factory=lambda: MemoryAnswer(answer=Answer.NOT_JUDGED, reason=_NOT_READ)
    )
    memory: tuple[Finding, ...] = ()
    """The findings about memory."""
    measured: "Measured | None" = None
    deepspeed: DeepSpeedSource = field(
        default_factory=lambda: DeepSpeedSource(
            version=table_version().table, how=table_version().description
        )
    )

    @property
    def refused(self) -> bool:
        """Whether an error was found."""
        return verdict_of(self.findings) is Verdict.ERROR


def gate(
    request: GateRequest,
    *,
    text: bytes | None = None,
    on_start: Callable[[str], None] = lambda _: None,
) -> GateResult:
    """Judge a ds_config.

    Args:
        request: config, job and options.
        text: the config; None reads the file that the request names.
        on_start: called with a line of progress before a step that takes long: `--measure`.

    Raises:
        AutotuneError: the request or a file beside the config is wrong; a fault of the config is a
            finding.
    """
    require_rules(request.ignore, option="--ignore")
    entries = read_accepted(request.accepted) if request.accepted else ()
    require_rules((entry.rule for entry in entries), option=f"--accepted {request.accepted}:")
    record = _record_of(request)
    text = read_config(request.ds_config) if text is None else text
    document = read_subject(text, request)
    job = _resolved(request, document, record)
    judged = _Judged(findings=list(document.findings))
    if document.subject is not None:
        _judge(judged, job, request)
        if record is not None:
            _compare(judged, job.subject, request, record=record, on_start=on_start)
    found = (_readable(document.in_file_words(finding)) for finding in judged.findings)
    kept = [finding for finding in found if finding.rule not in request.ignore]
    counting, accepted = split_accepted(kept, entries, note_unused=request.note_unused)
    return GateResult(
        ds_config=request.ds_config,
        file=_file_of(document.name, request.ds_config),
        findings=_worst_first(counting),
        accepted=_worst_first(accepted),
        answer=judged.answer,
        job=job,
        deepspeed=judged.deepspeed,
        measured=None if judged.measured is None else judged.measured.to_json(),
    )


def _resolved(request: GateRequest, document: Document, record: "Record | None") -> ResolvedJob:
    recorded = None
    if record is not None:
        from autotune.gating.baseline.record import recorded_job

        recorded = recorded_job(record)
    return resolve_job(
        request.job, subject=document.subject, job_file=request.job_file, record=recorded
    )


def _judge(judged: _Judged, job: ResolvedJob, request: GateRequest) -> None:
    """Add the findings of the steps that need a readable config."""
    subject = job.subject
    judged.findings += lint(subject, ignore=request.ignore)
    judged.findings += precision_findings(subject, job.site.device)
    judged.answer = judge_memory(job)
    judged.memory = tuple(memory_findings(subject, judged.answer))
    judged.findings += judged.memory
    if request.ask_deepspeed:
        config, world_size = as_deepspeed_sees_it(subject)
        answer = ask_deepspeed(config, world_size=world_size)
        judged.deepspeed = DeepSpeedSource(version=answer.version, how="DeepSpeedConfig")
        judged.findings += deepspeed_refuses(subject, answer)


def _compare(
    judged: _Judged,
    subject: Subject,
    request: GateRequest,
    *,
    record: "Record",
    on_start: Callable[[str], None],
) -> None:
    """Add how the config differs from the record and, with `--measure`, its runs from the record's.

    A config that cannot run or does not fit is not run.
    """
    from autotune.gating.baseline.compare import compare_with_record

    judged.findings += compare_with_record(subject, record, request)
    if not request.measure:
        return
    if verdict_of((*lint(subject), *judged.memory)) is Verdict.ERROR:
        from autotune.gating.baseline.measure import not_measurable

        judged.findings += not_measurable("fix the errors first")
        return
    on_start("measuring: two runs, as the record's were run")
    _measure(judged, subject, request, record)


def _record_of(request: GateRequest) -> "Record | None":
    # Imported only with a record: most calls have none, and half of their time is imports.
    if request.baseline is None:
        return None
    from autotune.gating.baseline.record import read_record

    record = read_record(request.baseline)
    if request.measure:
        from autotune.gating.baseline.measure import require_measurable

        # Before the config is judged, so that a request that cannot be measured fails at once.
        require_measurable(record)
    return record


def _measure(judged: _Judged, subject: Subject, request: GateRequest, record: "Record") -> None:
    """Run the config and add how its speed and memory compare with the record's."""
    from autotune.gating.baseline.measure import compare_measured, measure, not_measurable

    try:
        judged.measured = measure(subject, record, ray_address=request.ray_address)
    except ConfigError as error:
        judged.findings += not_measurable(str(error))
        return
    judged.findings += compare_measured(
        judged.measured, record, max_regression=request.max_regression
    )


def _readable(finding: Finding) -> Finding:
    """Return a finding with characters escaped that no output can hold: it quotes the config."""
    return replace(
        finding,
        field=_printable(finding.field),
        message=_printable(finding.message),
        suggestion=finding.suggestion and _printable(finding.suggestion),
    )


def _printable(text: str) -> str:
    r"""Return a text with control characters and lone surrogates escaped.

    Example:
        >>> _printable("a\x1b[31m\nb")
        'a\\x1b[31m\nb'
    """
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def _file_of(name: str, ds_config: str) -> str:
    """Return the file that line numbers refer to: an Accelerate YAML may name another one."""
    return name if name == ds_config else str(Path(ds_config).parent / name)


def _worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: _ORDER[finding.severity]))
