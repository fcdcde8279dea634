"""Applies the rules to a subject."""

from collections.abc import Collection, Iterable

from autotune.lint.finding import Finding, Severity, Verdict
from autotune.lint.rules import RULES
from autotune.lint.subject import Subject

_ORDER = {severity: place for place, severity in enumerate(Severity)}


def lint(subject: Subject, *, ignore: Collection[str] = ()) -> tuple[Finding, ...]:
    """Return the findings of all rules, worst first.

    Args:
        subject: the config and its launch.
        ignore: ids of rules to skip.
    """
    found = [f for rule in RULES if rule.id not in ignore for f in rule.findings(subject)]
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """Return the verdict of the worst finding.

    Example:
        >>> verdict_of([])
        <Verdict.OK: 'ok'>
    """
    severities = {finding.severity for finding in findings}
    if Severity.ERROR in severities:
        return Verdict.ERROR
    return Verdict.WARNING if Severity.WARNING in severities else Verdict.OK
