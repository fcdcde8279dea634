"""`--format junit`: a test suite per config, a test case per rule that was applied.

The format that Jenkins, GitLab and others read (testmoapp/junitxml describes it): a finding that
fails the gate is a failure, any other is the `system-out` of a case that passed.
"""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from autotune.gating.result import DEVICE_MEMORY, GateResult
from autotune.gating.rules import all_rules
from autotune.lint.finding import Finding, Severity
from autotune.predict.memory.fit import Answer
from autotune.report.gate.messages import (
    memory_line,
    must_print_answer,
    shown_path,
    whole_message,
)

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow, escaped or not."""


def junit_xml(results: Sequence[GateResult], *, strict: bool = False) -> str:
    """Return the results as JUnit XML; with `strict` warnings are failures too."""
    suites = ET.Element("testsuites", name="autotune gate")
    for result in results:
        suites.append(_suite(result, strict=strict))
    for name in ("tests", "failures"):
        suites.set(name, str(sum(int(suite.get(name, 0)) for suite in suites)))
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _suite(result: GateResult, *, strict: bool) -> ET.Element:
    name = _as_xml(shown_path(result.file))
    suite = ET.Element("testsuite", name=name)
    found = {finding.rule for finding in result.findings}
    cases = [_case(name, finding, strict=strict) for finding in result.findings]
    # Rules that found nothing are tests that passed, so that a report is never empty.
    cases += [_passed(name, rule) for rule in all_rules() if rule not in found]
    for case in cases:
        if case.get("name") == DEVICE_MEMORY and must_print_answer(result):
            text = _as_xml(memory_line(result))
            if strict and result.answer.answer is Answer.NOT_JUDGED:
                ET.SubElement(case, "failure", type=DEVICE_MEMORY, message=text)
            ET.SubElement(case, "system-out").text = text
    suite.extend(cases)
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("errors", "0")
    return suite


def _passed(suite: str, rule: str) -> ET.Element:
    return ET.Element("testcase", classname=suite, name=rule)


def _case(suite: str, finding: Finding, *, strict: bool) -> ET.Element:
    name = f"{finding.rule}: {finding.field}" if finding.field else finding.rule
    case = ET.Element("testcase", classname=suite, name=_as_xml(name), file=suite)
    if finding.line is not None:
        case.set("line", str(finding.line))
    text = _as_xml(_output(finding))
    if finding.severity is Severity.ERROR or (strict and finding.severity is Severity.WARNING):
        failure = ET.SubElement(
            case, "failure", type=finding.rule, message=_as_xml(finding.message)
        )
        failure.text = text
    else:
        ET.SubElement(case, "system-out").text = text
    return case


def _output(finding: Finding) -> str:
    line = "" if finding.line is None else f" (line {finding.line})"
    return f"{finding.severity}{line}: {whole_message(finding)}"


def _as_xml(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
