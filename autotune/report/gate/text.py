"""`--format text`: a result on the console."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from autotune.gating.result import GateResult
from autotune.job.ceiling import format_gib
from autotune.lint.finding import Finding, Severity, Verdict
from autotune.lint.rule_info import RuleInfo
from autotune.report.gate.messages import memory_line, shown_path

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
_VERDICT_STYLES = {
    Verdict.OK: "bold green",
    Verdict.WARNING: "bold yellow",
    Verdict.ERROR: "bold red",
}
_PLURALS = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.NOTE: "notes"}


def print_result(result: GateResult) -> None:
    """Print findings by severity, then one line with verdict, memory and DeepSpeed's version."""
    console = Console(highlight=False, soft_wrap=True)
    name = shown_path(result.ds_config)
    for severity in Severity:
        group = [finding for finding in result.findings if finding.severity is severity]
        if group:
            console.print(Text(_heading(severity, len(group)), style=_STYLES[severity]))
            for finding, following in zip(group, [*group[1:], None], strict=True):
                _print_finding(console, finding, shown_path(result.file))
                if not _has_same_suggestion(finding, following):
                    _print_suggestion(console, finding)
    line = Text.assemble(f"{name}: ", (result.verdict.value, _VERDICT_STYLES[result.verdict]))
    line.append(f" ({'; '.join(_circumstances(result))}) ", style="dim")
    # Not dim: the verdict alone is easy to misread.
    line.append(memory_line(result))
    console.print(line)


def print_page(rule: RuleInfo) -> None:
    """Print the page of a rule."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(f"{rule.id} ({rule.severity})", style="bold"))
    console.print(rule.page, markup=False)


def print_rules(rules: Sequence[RuleInfo]) -> None:
    """Print one line a rule: id, severity, summary."""
    console = Console(highlight=False, soft_wrap=True)
    width = max(len(rule.id) for rule in rules)
    for rule in rules:
        style = _STYLES[rule.severity]
        severity = (f"{rule.severity:<7}", style)
        console.print(Text.assemble(f"{rule.id:<{width}}  ", severity, f"  {rule.summary}"))


def _heading(severity: Severity, count: int) -> str:
    return f"1 {severity}" if count == 1 else f"{count} {_PLURALS[severity]}"


def _print_finding(console: Console, finding: Finding, name: str) -> None:
    place, message = "", finding.message
    if finding.line is not None:
        place = f"{name}:{finding.line}:{finding.column or 1}: "
        message = message.removeprefix(f"line {finding.line}, column {finding.column}: ")
    console.print(Text.assemble("  ", (place, "dim"), message, (f"  [{finding.rule}]", "dim")))


def _has_same_suggestion(finding: Finding, following: Finding | None) -> bool:
    """Whether the next finding has the same rule and the same suggestion."""
    if following is None or (finding.fix is None) is not (following.fix is None):
        return False
    return finding.rule == following.rule and finding.suggestion == following.suggestion


def _print_suggestion(console: Console, finding: Finding) -> None:
    if finding.severity is Severity.NOTE:
        return  # harmless: the message is enough
    fixable = " (--fix does it)" if finding.fix is not None else ""
    # Several lines are several suggestions.
    for suggestion in (finding.suggestion or "").splitlines():
        console.print(Text.assemble(("    -> ", "dim"), suggestion, (fixable, "dim")))


def _circumstances(result: GateResult) -> list[str]:
    deepspeed = result.deepspeed
    found = [f"DeepSpeed {deepspeed.version or 'unknown'}, {deepspeed.how}"]
    if result.measured is not None and result.measured["tokens_per_s"] is not None:
        measured = result.measured
        found.append(
            f"{measured['evaluator']} {measured['tokens_per_s']:,.0f} tokens/s, peak "
            f"{format_gib(measured['peak_bytes'])}"
        )
    if result.accepted:
        found.append(f"{len(result.accepted)} accepted")
    return found
