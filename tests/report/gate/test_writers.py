"""The forms in which CI systems read the gate's findings."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft4Validator

from autotune.gating.result import DEVICE_MEMORY
from autotune.gating.rules import all_rules
from autotune.planning.memory_answer import MemoryAnswer
from autotune.predict.memory.fit import Answer
from autotune.report.gate import WRITERS, json_object
from autotune.report.gate.github import github_annotations
from autotune.report.gate.junit import junit_xml
from autotune.report.gate.sarif import sarif_log
from tests.gating.judging import config, judge
from tests.report.gate.results import ERROR, NOTE, WARNING, result

FITS = MemoryAnswer(answer=Answer.FITS)
NOT_JUDGED = "memory not judged: give --model or --params"
# SchemaStore's sarif-2.1.0-rtm.3, the OASIS schema but for later editorial changes.
SARIF_SCHEMA = Path(__file__).parents[2] / "data" / "sarif_schema_2.1.0.json"


@pytest.fixture(scope="module")
def sarif_schema() -> Draft4Validator:
    return Draft4Validator(json.loads(SARIF_SCHEMA.read_text(encoding="utf-8")))


def test_the_json_of_one_config_has_the_contracts_keys() -> None:
    loaded = json.loads(json_object([result(ERROR, WARNING)]))
    assert loaded["verdict"] == "error"
    assert loaded["memory"] is None
    assert loaded["memory_reason"] == "give --model or --params"
    assert loaded["deepspeed"] == {"version": "0.19.8", "how": "table of fields"}
    first = loaded["findings"][0]
    assert {key: first[key] for key in ("rule", "severity", "field", "message", "suggestion")} == {
        "rule": "unknown-key",
        "severity": "error",
        "field": "zero_optimization.stge",
        "message": "zero_optimization.stge: no such key",
        "suggestion": "write stage",
    }


def test_the_json_of_several_configs_has_the_worst_verdict() -> None:
    loaded = json.loads(json_object([result(), result(WARNING), result(NOTE)]))
    assert loaded["verdict"] == "warning"
    assert [each["verdict"] for each in loaded["results"]] == ["ok", "warning", "ok"]


@pytest.mark.parametrize("form", WRITERS)
def test_every_form_can_be_written_to_a_file(form: str) -> None:
    text = WRITERS[form]([result(ERROR, WARNING, NOTE), result(accepted=(ERROR,))], strict=False)
    text.encode("utf-8")


def test_annotations_are_escaped_as_githubs_toolkit_escapes_them() -> None:
    lines = github_annotations([result(ERROR, WARNING, NOTE)]).splitlines()
    assert lines[0] == (
        "::error file=configs/ds config.json,line=3,col=5,"
        "title=unknown-key%3A zero_optimization.stge::"
        "zero_optimization.stge: no such key. Suggestion: write stage"
    )
    assert lines[1].startswith("::warning file=configs/ds config.json,line=7,title=")
    assert "50%25 of" in lines[1]
    assert "%0D%0A" in lines[1]
    assert lines[2] == "::notice file=configs/ds config.json,title=cannot-act::nothing"
    assert lines[3] == f"::notice file=configs/ds config.json,title=memory::{NOT_JUDGED}"
    assert len(lines) == 4


def test_a_comma_or_colon_in_a_path_does_not_end_the_property() -> None:
    lines = github_annotations([result(NOTE, ds_config="a,b:c%.json")]).splitlines()
    assert len(lines) == 2
    assert all(line.startswith("::notice file=a%2Cb%3Ac%25.json,title=") for line in lines)


def test_a_clean_config_that_fits_has_no_annotations() -> None:
    assert github_annotations([result(answer=FITS)]) == ""


@pytest.mark.parametrize(("strict", "command"), [(False, "notice"), (True, "error")])
def test_memory_that_is_not_judged_is_an_annotation(command: str, *, strict: bool) -> None:
    (line,) = github_annotations([result()], strict=strict).splitlines()
    assert line == f"::{command} file=configs/ds config.json,title=memory::{NOT_JUDGED}"


def test_an_assumption_is_a_notice_however_strict() -> None:
    answer = judge(config(3, micro="auto"), activation_checkpointing=True).answer
    assert answer.answer is Answer.FITS
    for strict in (False, True):
        (line,) = github_annotations([result(answer=answer)], strict=strict).splitlines()
        assert line.startswith("::notice file=configs/ds config.json,title=memory::memory fits, ")
        assert line.endswith("; assumed: micro batch 8 (Trainer default; --hf-args not given)")


def _suite(text: str) -> Any:
    return ET.fromstring(text)


def test_a_rule_that_passed_on_assumptions_says_so() -> None:
    auto, sure = (
        judge(config(3, micro=micro), activation_checkpointing=True).answer for micro in ("auto", 8)
    )
    (printed,) = _suite(junit_xml([result(answer=auto)], strict=True)).iter("system-out")
    assert printed.text.startswith("memory fits, needs ")
    assert printed.text.endswith(f"; assumed: {auto.assumed[0]}")
    assert not list(_suite(junit_xml([result(answer=sure)])).iter("system-out"))


@pytest.mark.parametrize("strict", [False, True])
def test_memory_that_is_not_judged_is_in_the_case_of_device_memory(*, strict: bool) -> None:
    suites = _suite(junit_xml([result()], strict=strict))
    (case,) = (c for c in suites.iter("testcase") if c.get("name") == DEVICE_MEMORY)
    assert case.findtext("system-out") == NOT_JUDGED
    failure = case.find("failure")
    assert suites.get("failures") == ("1" if strict else "0")
    assert (failure is not None and failure.get("message")) == (strict and NOT_JUDGED)


def test_errors_are_failures_and_warnings_are_not() -> None:
    suites = _suite(junit_xml([result(ERROR, WARNING, NOTE, answer=FITS), result()]))
    first, second = suites.findall("testsuite")
    assert (first.get("failures"), second.get("failures")) == ("1", "0")
    assert suites.get("failures") == "1"
    (failure,) = first.iter("failure")
    assert failure.get("type") == "unknown-key"
    assert failure.get("message") == ERROR.message
    assert "write stage" in failure.text
    assert len(list(first.iter("system-out"))) == 2


def test_with_strict_warnings_are_failures_too() -> None:
    suites = _suite(junit_xml([result(WARNING, NOTE, answer=FITS)], strict=True))
    assert suites.get("failures") == "1"


def test_rules_that_found_nothing_are_tests_that_passed() -> None:
    suites = _suite(junit_xml([result(ERROR)]))
    names = {case.get("name") for case in suites.iter("testcase")}
    assert names >= set(all_rules()) - {"unknown-key"}
    assert int(suites.get("tests")) == len(list(suites.iter("testcase")))


def test_what_xml_cannot_hold_is_replaced() -> None:
    text = junit_xml([result(WARNING, answer=FITS)])
    (output,) = _suite(text).iter("system-out")
    assert "\N{REPLACEMENT CHARACTER} é" in output.text
    assert '50% of "a", <b> & c' in output.text


def test_the_sarif_log_is_valid(sarif_schema: Draft4Validator) -> None:
    log = json.loads(
        sarif_log([result(ERROR, WARNING, NOTE, accepted=(WARNING,)), result(ds_config="-")])
    )
    assert [error.message for error in sarif_schema.iter_errors(log)] == []
    # And the schema is one that can say no.
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert len(list(sarif_schema.iter_errors(log))) == 1


def test_the_sarif_log_points_at_rule_file_and_place() -> None:
    (run,) = json.loads(sarif_log([result(ERROR, accepted=(WARNING,))]))["runs"]
    found, accepted = run["results"]
    rules = run["tool"]["driver"]["rules"]
    assert rules[found["ruleIndex"]]["id"] == found["ruleId"] == "unknown-key"
    physical = found["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == "configs/ds%20config.json"
    assert physical["region"] == {"startLine": 3, "startColumn": 5}
    assert "suppressions" not in found
    assert accepted["suppressions"] == [{"kind": "external"}]


def test_a_sarif_region_never_has_a_column_without_a_line() -> None:
    (run,) = json.loads(sarif_log([result(NOTE)]))["runs"]
    assert "region" not in run["results"][0]["locations"][0]["physicalLocation"]


def test_the_sarif_log_has_the_answer_about_memory_as_a_notification() -> None:
    (run,) = json.loads(sarif_log([result(), result(answer=FITS)]))["runs"]
    (invocation,) = run["invocations"]
    texts = [note["message"]["text"] for note in invocation["toolExecutionNotifications"]]
    assert texts == [NOT_JUDGED, "memory fits"]
