"""Real configurations get the verdict that a careful reader gave, for the fields at fault."""

from pathlib import Path

import pytest

from autotune.lint.finding import Finding, Severity
from tests.lint.cases import Case, all_cases, errors, is_about, judged

CASES = all_cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder.name)
def test_a_case_gets_its_verdict_for_the_fields_at_fault(case: Case, tmp_path: Path) -> None:
    result = judged(case, tmp_path)
    listing = "\n".join(
        f"{finding.severity}: {finding.rule}: {finding.message}" for finding in result.findings
    )
    assert result.verdict in case.verdicts, f"{case.expected['reason']}\n{listing}"
    if case.is_memory:
        return  # its fields are remedies, of which the gate names some
    fields = case.expected["fields"]
    if result.verdict.value == case.expected["verdict"]:
        missed = [field for field in fields if not _names(result.findings, field)]
        assert missed == [], listing
    elsewhere = [
        finding
        for finding in errors(result.findings)
        if finding.field and not any(is_about(finding, field) for field in fields)
    ]
    assert elsewhere == [], listing


def test_all_cases_are_there() -> None:
    assert len(CASES) == 57


def _names(findings: tuple[Finding, ...], field: str) -> bool:
    return any(
        finding.severity is not Severity.NOTE and is_about(finding, field) for finding in findings
    )
