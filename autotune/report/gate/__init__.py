"""Writers of gate results: text, JSON, JUnit, GitHub, SARIF."""

import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from autotune.gating.result import GateResult
from autotune.lint.check import verdict_of
from autotune.report.gate.github import github_annotations
from autotune.report.gate.junit import junit_xml
from autotune.report.gate.sarif import sarif_log
from autotune.report.gate.text import print_page, print_result, print_rules

__all__ = [
    "FORMATS",
    "WRITERS",
    "Writer",
    "json_object",
    "print_page",
    "print_result",
    "print_rules",
]


class Writer(Protocol):
    """Formats one or several results."""

    def __call__(self, results: Sequence[GateResult], *, strict: bool) -> str:
        """Return the text.

        Args:
            results: one per config.
            strict: whether warnings fail.
        """


def json_object(results: Sequence[GateResult]) -> str:
    """Return one result as a JSON object; several as an object with `results` and worst verdict."""
    if len(results) == 1:
        value = results[0].to_json()
    else:
        verdict = verdict_of(finding for result in results for finding in result.findings)
        value = {"verdict": verdict.value, "results": [result.to_json() for result in results]}
    # JSON has no NaN; messages may quote one, values of findings never contain it.
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


WRITERS: Mapping[str, Writer] = {
    "json": lambda results, *, strict: json_object(results),
    "junit": junit_xml,
    "github": github_annotations,
    "sarif": lambda results, *, strict: sarif_log(results),
}
"""Every format except `text`, which is printed on a console."""

FORMATS = ("text", *WRITERS)
