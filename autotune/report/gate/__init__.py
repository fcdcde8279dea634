"""Writers of gate results: text, JSON, JUnit, GitHub, SARIF."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from autotune.gate.result import GateResult
from autotune.report.gate.github import github_annotations
from autotune.report.gate.json_object import json_object
from autotune.report.gate.junit import junit_xml
from autotune.report.gate.sarif import sarif_log
from autotune.report.gate.text import print_page, print_result, print_rules

__all__ = ["FORMATS", "WRITERS", "Writer", "print_page", "print_result", "print_rules"]


class Writer(Protocol):
    """Formats one or several results."""

    def __call__(self, results: Sequence[GateResult], *, strict: bool) -> str:
        """Return the text.

        Args:
            results: one per config.
            strict: whether warnings fail.
        """


WRITERS: Mapping[str, Writer] = {
    "json": lambda results, *, strict: json_object(results),
    "junit": junit_xml,
    "github": github_annotations,
    "sarif": lambda results, *, strict: sarif_log(results),
}
"""Every format except `text`, which is printed on a console."""

FORMATS = ("text", *WRITERS)
