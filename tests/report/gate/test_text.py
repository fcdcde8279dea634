"""The text that the gate prints."""

from dataclasses import replace

import pytest

from autotune.gating.rules import all_rules
from autotune.report.gate import print_page, print_result, print_rules
from tests.gating.judging import config, judge
from tests.report.gate.results import ERROR, NOTE, WARNING, result


def _printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_a_clean_config_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result())
    assert _printed(capsys) == (
        "configs/ds config.json: ok (DeepSpeed 0.19.8, table of fields) memory not judged: give "
        "--model or --params\n"
    )


def test_findings_are_grouped_worst_first(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result(ERROR, WARNING, NOTE))
    lines = _printed(capsys).splitlines()
    headings = [line for line in lines if not line.startswith(" ")]
    assert headings[0] == "1 error"
    assert "1 warning" in headings
    assert lines[1] == (
        "  configs/ds config.json:3:5: zero_optimization.stge: no such key  [unknown-key]"
    )
    assert lines[2] == "    -> write stage (--fix does it)"
    assert lines[-1].startswith("configs/ds config.json: error (")


def test_one_suggestion_of_several_findings_is_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = replace(WARNING, message="another place", suggestion="a suggestion")
    print_result(result(replace(other, message="a place"), other, replace(other, rule="type")))
    lines = _printed(capsys).splitlines()
    assert [line.startswith("    -> ") for line in lines] == [False] * 3 + [
        True,
        False,
        True,
        False,
    ]


def test_a_note_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result(replace(NOTE, suggestion="remove it")))
    assert _printed(capsys).splitlines()[:-1] == ["1 note", "  nothing  [cannot-act]"]


def test_markup_in_a_message_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result(WARNING))
    assert "[/b]" in _printed(capsys)


def test_a_terminal_gets_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_result(result(ERROR))
    assert "\x1b[1;31m" in _printed(capsys)


def test_what_was_predicted_and_measured_is_named_so(capsys: pytest.CaptureFixture[str]) -> None:
    answer = judge(config(3), activation_checkpointing=True).answer
    memory = answer.to_json()
    assert memory is not None
    device = memory["device"]
    needed, limit = (device[key] / 2**30 for key in ("needed_bytes", "limit_bytes_of_device"))
    measured = {"evaluator": "measured", "tokens_per_s": 1234.5, "peak_bytes": 2**30}
    print_result(result(answer=answer, measured=measured, accepted=(NOTE,)))
    assert _printed(capsys).endswith(
        "(DeepSpeed 0.19.8, table of fields; measured 1,234 tokens/s, peak 1.00 GiB; 1 accepted) "
        f"memory fits, needs {needed:.2f} GiB of {limit:.2f} GiB\n"
    )


def test_a_verdict_says_what_it_rests_on(capsys: pytest.CaptureFixture[str]) -> None:
    answer = judge(config(3), seq_len=None, activation_checkpointing=True).answer
    assumed = "; assumed: sequence length 2048 (preset; --seq-len not given)"
    printed = result(answer=answer)
    print_result(printed)
    line = _printed(capsys)
    assert line.startswith("configs/ds config.json: ok (DeepSpeed 0.19.8, table of fields) memory ")
    assert "memory not judged: give --seq-len, needs " in line
    assert line.endswith(f"{assumed}\n")
    # An error rests on it too.
    print_result(replace(printed, findings=(replace(ERROR, rule="device-memory"),)))
    assert _printed(capsys).endswith(f"{assumed}\n")


def test_a_page_has_the_rules_name_severity_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    rule = all_rules()["config-differs"]
    print_page(rule)
    assert _printed(capsys) == f"config-differs (error)\n{rule.page}\n"


def test_every_rule_is_listed_with_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_rules(list(all_rules().values()))
    lines = _printed(capsys).splitlines()
    assert len(lines) == len(all_rules())
    for line, rule in zip(lines, all_rules().values(), strict=True):
        assert line.split()[:2] == [rule.id, rule.severity]
        assert line.endswith(rule.summary)
