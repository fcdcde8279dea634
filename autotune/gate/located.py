"""From a fault to a finding with its place in the file, for rules that read more than a config."""

from autotune.lint.finding import Finding, Severity
from autotune.lint.format_value import format_value
from autotune.lint.rule import Fault
from autotune.lint.subject import Subject


def located(subject: Subject, fault: Fault, *, rule: str, severity: Severity) -> Finding:
    """Return the finding at the field as the file spells it.

    Args:
        subject: the config.
        fault: its field by its documented name; the message says what is wrong with it, without
            naming it.
        rule: the rule's id.
        severity: how bad it is here.
    """
    field = subject.spelled(fault.field)
    value = subject.value(fault.field)
    said = field if value is None or isinstance(value, dict) else f"{field}={format_value(value)}"
    line, column = subject.position(field)
    return Finding(
        rule=rule,
        severity=severity,
        field=field,
        message=f"{said}: {fault.message}" if said else fault.message,
        suggestion=fault.suggestion,
        line=line,
        column=column,
    )
