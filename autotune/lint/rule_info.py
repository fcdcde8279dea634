"""The declaration that all rules share: id, severity and page."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from autotune.lint.finding import Finding, Severity
from autotune.lint.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleInfo:
    """A rule as `--explain` prints it and `--list-rules` lists it."""

    id: str
    """Kebab case, as in `--ignore batch-arithmetic`."""
    severity: Severity
    """The default; a finding may have another one."""
    text: str
    """Its first line names the fault; then why it is one, and how to fix it. May be indented, as a
    docstring is."""

    @property
    def page(self) -> str:
        """The text without indentation."""
        return inspect.cleandoc(self.text)

    @property
    def summary(self) -> str:
        """One line: the first of the page."""
        return self.page.partition("\n")[0]

    @classmethod
    def of(cls, check: Callable[..., object], identifier: str, severity: Severity) -> Self:
        """Return the rule of a function, with its docstring as the page."""
        return cls(id=identifier, severity=severity, text=check.__doc__ or "")

    def finding(
        self,
        field: str,
        message: str,
        *,
        suggestion: str | None = None,
        severity: Severity | None = None,
        subject: Subject | None = None,
    ) -> Finding:
        """Return a finding of this rule.

        Args:
            field: dotted; a path in the ds_config, or in the compared record.
            message: where, value, rule.
            suggestion: how to fix it.
            severity: None is the rule's own.
            subject: gives line and column of the field, where the config has it.
        """
        line, column = (None, None) if subject is None else subject.position(field)
        return Finding(
            rule=self.id,
            severity=severity or self.severity,
            field=field,
            message=message,
            suggestion=suggestion,
            line=line,
            column=column,
        )
