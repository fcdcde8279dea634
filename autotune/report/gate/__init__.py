"""What the gate says, in the forms that people, CI systems and code hosts read."""

from collections.abc import Callable, Mapping, Sequence

from autotune.gate.result import GateResult
from autotune.report.gate.github import github_annotations
from autotune.report.gate.json_object import json_object
from autotune.report.gate.junit import junit_xml
from autotune.report.gate.sarif import sarif_log
from autotune.report.gate.text import print_page, print_result, print_rules

__all__ = ["FORMATS", "WRITERS", "Writer", "print_page", "print_result", "print_rules"]

Writer = Callable[[Sequence[GateResult]], str]
"""Gives the whole text of one or several results."""

WRITERS: Mapping[str, Writer] = {
    "json": json_object,
    "junit": junit_xml,
    "github": github_annotations,
    "sarif": sarif_log,
}
"""Every form but `text`, which is printed on a console."""

FORMATS = ("text", *WRITERS)
