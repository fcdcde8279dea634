"""Rules that read a config alone, made of functions."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from autotune.lint.finding import Finding, Fix, RefusedBy, Severity
from autotune.lint.format_value import format_value
from autotune.lint.rule_info import RuleInfo
from autotune.lint.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that a rule's function yields; the rule adds its id and the fields that are None."""

    field: str
    message: str
    suggestion: str | None = None
    fix: Fix | None = None
    severity: Severity | None = None
    """None is the rule's own."""
    refused_by: RefusedBy | None = None
    """None is the rule's own."""


Check: TypeAlias = Callable[[Subject], Iterable[Fault]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(RuleInfo):
    """A rule that reads a config and its launch alone."""

    check: Check
    refused_by: RefusedBy = RefusedBy.NOTHING
    """Who would stop the run. A test holds `parse` true: the installed `DeepSpeedConfig` refuses
    each config in which such a rule finds an error, and no other."""

    def findings(self, subject: Subject) -> Iterator[Finding]:
        """Yield what the rule finds in a config."""
        for fault in self.check(subject):
            line, column = subject.position(fault.field)
            yield Finding(
                rule=self.id,
                severity=fault.severity or self.severity,
                field=fault.field,
                message=fault.message,
                suggestion=fault.suggestion,
                fix=fault.fix,
                refused_by=fault.refused_by or self.refused_by,
                line=line,
                column=column,
            )


def rule(
    identifier: str, severity: Severity, *, refused_by: RefusedBy = RefusedBy.NOTHING
) -> Callable[[Check], Rule]:
    """Make a rule of a function whose docstring is the rule's page.

    The page's first line names the fault; then why it is one, with DeepSpeed's file and function,
    and how to fix it.

    Example:
        >>> @rule("no-steps", Severity.WARNING)
        ... def no_steps(subject):
        ...     "steps_per_print is 0."
        ...     if subject.value("steps_per_print") == 0:
        ...         yield Fault(field="steps_per_print", message="steps_per_print=0: never prints")
        >>> [f.field for f in no_steps.findings(Subject(config={"steps_per_print": 0}))]
        ['steps_per_print']
    """

    def make(check: Check) -> Rule:
        return Rule(
            id=identifier,
            severity=severity,
            text=check.__doc__ or "",
            check=check,
            refused_by=refused_by,
        )

    return make


def located(subject: Subject, fault: Fault, *, rule: str, severity: Severity) -> Finding:
    """Return the finding of a fault, at the field as the file spells it.

    Args:
        subject: the config.
        fault: with the documented name of its field; the message does not repeat the name.
        rule: the rule's id.
        severity: how bad it is here.
    """
    field = subject.spelled(fault.field)
    value = subject.value(fault.field)
    where = field if value is None or isinstance(value, dict) else f"{field}={format_value(value)}"
    line, column = subject.position(field)
    return Finding(
        rule=rule,
        severity=severity,
        field=field,
        message=f"{where}: {fault.message}" if where else fault.message,
        suggestion=fault.suggestion,
        line=line,
        column=column,
    )
