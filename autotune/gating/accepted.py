"""A file of findings that somebody has looked at and accepted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from autotune.errors import GateError
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule_info import RuleInfo

_HEAD = "# Findings of autotune gate that were accepted: say why, and until when (until: DATE).\n"
_KEYS = ("rule", "field", "reason", "until")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """One entry: findings of a rule at a field do not count."""

    rule: str
    field: str
    reason: str
    until: date | None = None
    """The last day on which it holds; None is for good."""

    def covers(self, finding: Finding) -> bool:
        """Whether a finding is the one that was accepted."""
        return finding.rule == self.rule and finding.field == self.field

    def holds(self, today: date) -> bool:
        """Whether its time has not run out."""
        return self.until is None or today <= self.until


def read_accepted(path: Path) -> tuple[Acceptance, ...]:
    """Read a YAML or JSON file: a list of `rule`, `field`, `reason` and, if wanted, `until`.

    Raises:
        GateError: it cannot be read, or an entry is wrong; every fault is named.
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
    """Write a file that accepts findings, beside those it accepts already; notes need none.

    Returns:
        How many were added.

    Raises:
        GateError: the file is there and cannot be read, or cannot be written.
    """
    import yaml

    kept = read_accepted(path) if path.exists() else ()
    today = datetime.now(UTC).date().isoformat()
    new = {
        (finding.rule, finding.field): {
            "rule": finding.rule,
            "field": finding.field,
            "reason": f"not looked at yet; written by --write-accepted on {today}",
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
    """Return what counts and what is accepted; entries that do nothing any more are noted."""
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
    """An entry of the file of accepted findings does nothing.

    It matches no finding any more, or its `until` has passed, so that what it accepted counts
    again.

    Take it out of the file, or give it a later `until`.
    """
    for entry in entries:
        if not entry.holds(today):
            state = f"its time ran out on {entry.until}"
        elif not any(entry.covers(finding) for finding in findings):
            state = "nothing is found there any more"
        else:
            continue
        yield UNUSED.finding(
            entry.field,
            f"{entry.rule} at {entry.field or 'the whole config'} is accepted ({entry.reason}): "
            f"{state}",
            suggestion="take the entry out of the file of accepted findings",
        )


UNUSED = RuleInfo.of(unused_acceptance, "unused-acceptance", Severity.NOTE)
RULE_INFOS = (UNUSED,)


def _faults_of(entry: Any) -> Iterator[str]:
    if not isinstance(entry, Mapping):
        yield f"must have {', '.join(_KEYS[:3])}, and is {entry!r}"
        return
    for key in entry:
        if key not in _KEYS:
            yield f"{key} is no key of it; known keys: {', '.join(_KEYS)}"
    for key in ("rule", "reason"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            yield f"{key} must be a text that is not empty"
    if not isinstance(entry.get("field"), str):
        yield 'field must be a text: the dotted path of the finding, "" for the whole config'
    try:
        _day(entry.get("until"))
    except (TypeError, ValueError):
        yield f"until={entry.get('until')!r}: must be a date, such as 2027-01-31"


def _day(value: Any) -> date | None:
    # YAML makes dates of what looks like one, JSON leaves texts.
    if value is None or type(value) is date:
        return value
    return date.fromisoformat(value)


def _as_mapping(entry: Acceptance) -> dict[str, Any]:
    until = {} if entry.until is None else {"until": entry.until}
    return {"rule": entry.rule, "field": entry.field, "reason": entry.reason, **until}
