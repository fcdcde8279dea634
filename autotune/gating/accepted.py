"""The file of accepted findings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from autotune.errors import GateError
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule_info import RuleInfo

_HEAD = (
    "# Accepted findings of autotune gate: give a reason and, optionally, an end (until: DATE).\n"
)
_KEYS = ("rule", "field", "reason", "until")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """One entry: findings of a rule at a field do not count."""

    rule: str
    field: str
    reason: str
    until: date | None = None
    """The last day on which it holds; None is without end."""

    def covers(self, finding: Finding) -> bool:
        """Whether this entry accepts a finding."""
        return finding.rule == self.rule and finding.field == self.field

    def holds(self, today: date) -> bool:
        """Whether it has not expired."""
        return self.until is None or today <= self.until


def read_accepted(path: Path) -> tuple[Acceptance, ...]:
    """Read a YAML or JSON list of entries with `rule`, `field`, `reason` and optionally `until`.

    Raises:
        GateError: it cannot be read, or entries are wrong; every fault is listed.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise GateError(f"--accepted {path}: no such file; --write-accepted writes one") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise GateError(f"--accepted {path}: not readable as YAML or JSON: {error}") from error
    if not isinstance(content or [], list):
        raise GateError(f"--accepted {path}: must be a list of entries with {', '.join(_KEYS[:3])}")
    faults: list[str] = []
    entries = []
    for number, entry in enumerate(content or [], start=1):
        found = [f"--accepted {path}: entry {number}: {fault}" for fault in _faults_of(entry)]
        faults += found
        if not found:
            entries.append(Acceptance(**{**entry, "until": _day(entry.get("until"))}))
    if faults:
        raise GateError(*faults)
    return tuple(entries)


def write_accepted(path: Path, findings: Sequence[Finding]) -> int:
    """Add findings to a file of accepted findings; notes are not added.

    Returns:
        The number of new entries.

    Raises:
        GateError: an existing file cannot be read, or the file cannot be written.
    """
    import yaml

    kept = read_accepted(path) if path.exists() else ()
    today = datetime.now(UTC).date().isoformat()
    new = {
        (finding.rule, finding.field): {
            "rule": finding.rule,
            "field": finding.field,
            "reason": f"not reviewed yet; written by --write-accepted on {today}",
        }
        for finding in findings
        if finding.severity is not Severity.NOTE and not any(e.covers(finding) for e in kept)
    }
    entries = [_as_mapping(entry) for entry in kept] + list(new.values())
    try:
        path.write_text(_HEAD + yaml.safe_dump(entries, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise GateError(f"--accepted {path}: cannot be written: {error.strerror}") from error
    return len(new)


def split_accepted(
    findings: Sequence[Finding], entries: Sequence[Acceptance], *, note_unused: bool = True
) -> tuple[list[Finding], list[Finding]]:
    """Return the findings that count and the accepted ones; unused entries become notes."""
    today = datetime.now(UTC).date()
    valid = [entry for entry in entries if entry.holds(today)]
    accepted = [f for f in findings if any(entry.covers(f) for entry in valid)]
    counting = [f for f in findings if f not in accepted]
    if note_unused:
        counting += unused_acceptance(entries, findings, today=today)
    return counting, accepted


def unused_acceptance(
    entries: Sequence[Acceptance], findings: Sequence[Finding], *, today: date
) -> Iterator[Finding]:
    """An entry of the file of accepted findings has no effect.

    It matches no finding any more, or its `until` has passed and its finding counts again.

    Suggestion: remove the entry, or give it a later `until`.
    """
    for entry in entries:
        if not entry.holds(today):
            state = f"it expired on {entry.until}"
        elif not any(entry.covers(finding) for finding in findings):
            state = "it matches no finding any more"
        else:
            continue
        yield UNUSED.finding(
            entry.field,
            f"{entry.rule} at {entry.field or 'the whole config'} is accepted ({entry.reason}): "
            f"{state}",
            suggestion="remove the entry from the file of accepted findings",
        )


UNUSED = RuleInfo.of(unused_acceptance, "unused-acceptance", Severity.NOTE)
RULE_INFOS = (UNUSED,)


def _faults_of(entry: Any) -> Iterator[str]:
    if not isinstance(entry, Mapping):
        yield f"{entry!r}: must be a mapping with {', '.join(_KEYS[:3])}"
        return
    for key in entry:
        if key not in _KEYS:
            yield f"{key}: not a key of an entry; known keys: {', '.join(_KEYS)}"
    for key in ("rule", "reason"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            yield f"{key} must be a text and not empty"
    if not isinstance(entry.get("field"), str):
        yield 'field must be a text: the dotted path of the finding, "" for the whole config'
    try:
        _day(entry.get("until"))
    except (TypeError, ValueError):
        yield f"until={entry.get('until')!r}: must be a date, such as 2027-01-31"


def _day(value: Any) -> date | None:
    # YAML reads a date, JSON a text.
    if value is None or type(value) is date:
        return value
    return date.fromisoformat(value)


def _as_mapping(entry: Acceptance) -> dict[str, Any]:
    until = {} if entry.until is None else {"until": entry.until}
    return {"rule": entry.rule, "field": entry.field, "reason": entry.reason, **until}
