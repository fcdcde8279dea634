"""What a rule says of itself, whether it reads a config alone or more than that."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from autotune.lint.finding import Finding, Severity
from autotune.lint.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleInfo:
    """The page of a rule: what `--explain` prints and `--list-rules` lists."""

    id: str
    """Kebab case, as in `--ignore batch-arithmetic`."""
    severity: Severity
    """As a rule; a finding may be milder or worse."""
    text: str
    """Its first line names the fault; then why it is one, and how to mend it."""

    @property
    def summary(self) -> str:
        """One line: the first of the page."""
        return self.text.partition("\n")[0]

    @classmethod
    def of(cls, check: Callable[..., object], identifier: str, severity: Severity) -> Self:
        """Return the page that a function's docstring is, as with the rules of `autotune.lint`."""
        return cls(id=identifier, severity=severity, text=inspect.getdoc(check) or "")

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
            field: dotted; a path in the ds_config, or in the record that it is compared with.
            message: where, value, rule.
            suggestion: the way out.
            severity: None is the rule's own.
            subject: tells line and column of the field, where the config has it.
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
