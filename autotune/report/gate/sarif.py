"""`--format sarif`: SARIF 2.1.0, which code hosts show as code scanning alerts.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from autotune import __version__
from autotune.gating.result import GateResult
from autotune.gating.rules import all_rules
from autotune.lint.finding import Finding
from autotune.lint.rule_info import RuleInfo
from autotune.report.gate.messages import memory_line, shown_path, whole_message

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def sarif_log(results: Sequence[GateResult]) -> str:
    """Return the results as one run of a SARIF log; accepted findings are included, suppressed."""
    rules = list(all_rules().values())
    places = {rule.id: place for place, rule in enumerate(rules)}
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "autotune gate",
                        "version": __version__,
                        "semanticVersion": __version__,
                        "rules": [_rule(rule) for rule in rules],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolExecutionNotifications": [_memory(result) for result in results],
                    }
                ],
                "results": [entry for result in results for entry in _results(result, places)],
            }
        ],
    }
    return json.dumps(log, indent=2) + "\n"


def _rule(rule: RuleInfo) -> Mapping[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.page},
        "defaultConfiguration": {"level": rule.severity.value},
    }


def _memory(result: GateResult) -> Mapping[str, Any]:
    location = {"artifactLocation": {"uri": quote(shown_path(result.file))}}
    return {
        "level": "note",
        "message": {"text": memory_line(result)},
        "locations": [{"physicalLocation": location}],
    }


def _results(result: GateResult, places: Mapping[str, int]) -> list[Mapping[str, Any]]:
    path = shown_path(result.file)
    counting = [_result(finding, path, places) for finding in result.findings]
    accepted = [
        {**_result(finding, path, places), "suppressions": [{"kind": "external"}]}
        for finding in result.accepted
    ]
    return counting + accepted


def _result(finding: Finding, path: str, places: Mapping[str, int]) -> Mapping[str, Any]:
    location: dict[str, Any] = {"physicalLocation": _physical(finding, path)}
    if finding.field:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.field}]
    return {
        "ruleId": finding.rule,
        "ruleIndex": places[finding.rule],
        # SARIF's levels have the same names as our severities.
        "level": finding.severity.value,
        "message": {"text": whole_message(finding)},
        "locations": [location],
        "partialFingerprints": {"fieldOfRule/v1": f"{finding.rule}:{finding.field}"},
    }


def _physical(finding: Finding, path: str) -> Mapping[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": quote(path)}}
    if finding.line is not None:
        region = {"startLine": finding.line}
        if finding.column is not None:
            region["startColumn"] = finding.column
        physical["region"] = region
    return physical
