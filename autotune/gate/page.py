"""What a rule says of itself, whether it reads a config alone or more than that."""

from dataclasses import dataclass

from autotune.lint.finding import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
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
