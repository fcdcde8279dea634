"""`--format github`: workflow commands, which GitHub shows at the lines of a pull request.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from collections.abc import Sequence

from autotune.gating.result import GateResult
from autotune.lint.finding import Finding, Severity
from autotune.predict.memory.fit import Answer
from autotune.report.gate.messages import (
    memory_line,
    must_print_answer,
    shown_path,
    whole_message,
)

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_IN_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTY = _IN_MESSAGE | str.maketrans({":": "%3A", ",": "%2C"})
"""As GitHub's toolkit escapes them (`packages/core/src/command.ts`)."""


def github_annotations(results: Sequence[GateResult], *, strict: bool = False) -> str:
    """Return a workflow command per finding, and one for a memory answer with assumptions."""
    lines = [_command(result, finding) for result in results for finding in result.findings]
    lines += [_memory(result, strict=strict) for result in results if must_print_answer(result)]
    return "".join(f"{line}\n" for line in lines)


def _memory(result: GateResult, *, strict: bool) -> str:
    fails = strict and result.answer.answer is Answer.NOT_JUDGED
    file = shown_path(result.file).translate(_IN_PROPERTY)
    message = memory_line(result).translate(_IN_MESSAGE)
    return f"::{'error' if fails else 'notice'} file={file},title=memory::{message}"


def _command(result: GateResult, finding: Finding) -> str:
    properties = {
        "file": shown_path(result.file),
        "line": finding.line,
        "col": finding.column,
        "title": f"{finding.rule}: {finding.field}" if finding.field else finding.rule,
    }
    listed = ",".join(
        f"{name}={str(value).translate(_IN_PROPERTY)}"
        for name, value in properties.items()
        if value is not None
    )
    message = whole_message(finding).translate(_IN_MESSAGE)
    return f"::{_COMMANDS[finding.severity]} {listed}::{message}"
