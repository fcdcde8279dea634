"""What the gate says about real configurations, against the verdict of a careful reader.

Run as `python -m tests.benchmarks.false_alarms FOLDER`, where FOLDER holds configurations and an
`index.csv` with the columns `id` (the file's name without its ending), `launcher` (deepspeed or
hf), `our_verdict` (`ok: ...`, `warning: ...` or `error: ...`), `also_acceptable` (verdicts that are
right as well) and `world_size_valid` (`any`, `8`, `divisors of 16`, `multiples of 8`). It prints
each verdict that differs, then the counts, and exits with 1 when they are above the limits.
"""

import argparse
import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.gating.gate import gate
from autotune.job.launcher import Launcher
from autotune.lint.finding import Finding, Severity, Verdict
from tests.asked import gate_request

MAX_WARNINGS = 0.03
"""Share of the entries that are ok."""
_USUAL_GPUS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One configuration with both verdicts."""

    id: str
    expected: Verdict
    acceptable: frozenset[Verdict]
    """With the expected one."""
    reason: str
    got: Verdict
    findings: tuple[Finding, ...]

    @property
    def is_false_error(self) -> bool:
        """An error where the index says ok."""
        return self._is_alarm(Verdict.ERROR)

    @property
    def is_false_warning(self) -> bool:
        """A warning where the index says ok."""
        return self._is_alarm(Verdict.WARNING)

    @property
    def is_missed(self) -> bool:
        """No error where the index has one that a gate must find."""
        return self.expected is Verdict.ERROR and self.got not in self.acceptable

    @property
    def is_harsh(self) -> bool:
        """An error where the index has a warning."""
        return self.expected is Verdict.WARNING and self.got not in self.acceptable

    def _is_alarm(self, verdict: Verdict) -> bool:
        is_ok = self.expected is Verdict.OK and self.got is verdict
        return is_ok and verdict not in self.acceptable


def judge_all(folder: Path) -> list[Entry]:
    """Return the verdicts for every entry of a folder's index."""
    with (folder / "index.csv").open(encoding="utf-8", newline="") as file:
        return [_judge(folder, row) for row in csv.DictReader(file)]


def _judge(folder: Path, row: Mapping[str, str]) -> Entry:
    verdict, _, reason = row["our_verdict"].partition(":")
    [path] = [path for path in folder.glob(f"{row['id']}.*") if path.suffix != ".csv"]
    result = gate(
        gate_request(
            ds_config=str(path),
            launcher=Launcher(row["launcher"]),
            gpus=valid_gpus(row["world_size_valid"]),
        )
    )
    return Entry(
        id=row["id"],
        expected=Verdict(verdict),
        acceptable=frozenset(map(Verdict, [verdict, *row["also_acceptable"].split()])),
        reason=reason.strip(),
        got=result.verdict,
        findings=result.findings,
    )


def valid_gpus(world_sizes: str) -> int | None:
    """Return a number of ranks at which a configuration's batch sizes agree; None if all are.

    Example:
        >>> [valid_gpus(text) for text in ("any", "36", "divisors of 30")]
        [None, 36, 6]
    """
    number = re.search(r"\d+", world_sizes)
    if world_sizes.startswith("divisors of") and number:
        return max(n for n in range(1, _USUAL_GPUS + 1) if int(number[0]) % n == 0)
    return int(number[0]) if number else None


def report(entries: Iterable[Entry]) -> str:
    """Return the table: verdicts that are not acceptable, then how many there are of each."""
    entries = list(entries)
    lines = []
    for entry in entries:
        if entry.got in entry.acceptable:
            continue
        lines.append(f"{entry.id}  expected {entry.expected}, got {entry.got}: {entry.reason}")
        lines += [f"      {line}" for line in _lines_of(entry)]
    counts = Counter((entry.expected, entry.got) for entry in entries)
    lines.append("expected   ok  warning  error  (got)")
    for expected in Verdict:
        row = [counts[expected, got] for got in (Verdict.OK, Verdict.WARNING, Verdict.ERROR)]
        lines.append(f"{expected:8} {row[0]:4} {row[1]:8} {row[2]:6}")
    return "\n".join([*lines, *_counts(entries)])


def _counts(entries: list[Entry]) -> list[str]:
    ok = sum(entry.expected is Verdict.OK for entry in entries)
    warned = sum(entry.is_false_warning for entry in entries)
    return [
        f"false errors: {sum(entry.is_false_error for entry in entries)} of {ok}",
        f"false warnings: {warned} of {ok} ({warned / max(ok, 1):.1%})",
        f"missed errors: {sum(entry.is_missed for entry in entries)}",
        f"errors where a warning was right: {sum(entry.is_harsh for entry in entries)}",
    ]


def _lines_of(entry: Entry) -> list[str]:
    return [
        f"{finding.severity}: {finding.rule}: {finding.message}"
        for finding in entry.findings
        if finding.severity is not Severity.NOTE
    ]


def within_limits(entries: Iterable[Entry]) -> bool:
    """Whether a user could work with such a gate."""
    entries = list(entries)
    ok = sum(entry.expected is Verdict.OK for entry in entries)
    warned = sum(entry.is_false_warning for entry in entries)
    wrong = any(entry.is_false_error or entry.is_missed for entry in entries)
    return not wrong and warned <= MAX_WARNINGS * ok


def main() -> None:
    """Judge a folder and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    entries = judge_all(parser.parse_args().folder)
    sys.stdout.write(report(entries) + "\n")
    sys.exit(0 if within_limits(entries) else 1)


if __name__ == "__main__":
    main()
