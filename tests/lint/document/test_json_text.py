import json
from typing import Any

import hjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.job.launcher import READERS, Launcher
from autotune.lint.document.json_text import read_json
from autotune.lint.finding import Severity

_leaf = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
_keys = st.text(st.characters(codec="utf-8", exclude_characters="."), min_size=1, max_size=8)
_configs = st.dictionaries(
    _keys,
    st.recursive(
        _leaf | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


def _one(text: str, launcher: Launcher = Launcher.DEEPSPEED) -> tuple[str, str, Severity, int, int]:
    """Return rule, field, severity, line and column of the only finding."""
    [found] = read_json(text, launcher).findings
    assert found.line is not None
    assert found.column is not None
    return found.rule, found.field, found.severity, found.line, found.column


@given(_configs, st.sampled_from(READERS), st.sampled_from((None, 2)))
def test_json_is_read_without_complaint(
    config: dict[str, Any], launcher: Launcher, indent: int | None
) -> None:
    reading = read_json(json.dumps(config, indent=indent), launcher)
    assert reading.findings == ()
    assert reading.value == config


def test_every_key_has_its_place() -> None:
    text = '{\r\n  "fp16": {"enabled": true},\n\t"lr": [1, {"a": 2}]}'
    places = read_json(text, Launcher.HF).positions
    assert places["fp16"] == (2, 3)
    assert places["fp16.enabled"] == (2, 12)
    assert places["lr"] == (3, 2)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"a": 1} // why', "a comment"),
        ('{"a": 1 /* why */}', "a comment"),
        ('# why\n{"a": 1}', "a comment"),
        ('{"a": 1,}', "a comma after the last entry"),
        ('{"a": [1, 2,]}', "a comma after the last entry"),
        ('{a: "b"}', "a key without quotes"),
        ("{\"a\": 'b'}", "single quotes"),
        ('{"a": 1\n"b": 2}', "a missing comma"),
        ('"a": 1', "no braces"),
        ('{"a": cpu\n}', "text without quotes"),
    ],
)
def test_hjson_is_a_warning_for_deepspeed_and_an_error_for_hugging_face(
    text: str, kind: str
) -> None:
    for launcher, severity in (
        (Launcher.DEEPSPEED, Severity.WARNING),
        (Launcher.HF, Severity.ERROR),
    ):
        reading = read_json(text, launcher)
        assert reading.value == hjson.loads(text)
        [found] = reading.findings
        assert (found.rule, found.severity) == ("hjson-only", severity)
        assert kind in found.message
        assert found.message.startswith(f"line {found.line}, column {found.column}: ")


@pytest.mark.parametrize(
    ("text", "field", "place", "fault"),
    [
        ('{"a": {"b": 0,01\n}}', "a.b", (1, 13), "a decimal comma (0,01)"),
        ('{"a": 0,01, "b": 1}', "a", (1, 7), "a decimal comma"),
        (
            '{"a": True,\n"b": 1}',
            "a",
            (1, 7),
            "a Python word (True); DeepSpeed's reader reads the value as",
        ),
        ("{'a': 'x', 'b': None}", "b", (1, 17), "a Python word (None)"),
        ('{"a": 1_000,\n"b": 1}', "a", (1, 7), "a number in a form"),
        ('{"a": 10 000}', "a", (1, 7), "a number in a form"),
        ('{"a": .5}', "a", (1, 7), "a number in a form"),
        ('{"a": NaN}', "a", (1, 7), "NaN or Infinity"),
        ('{"a": 1e999}', "a", (1, 7), "NaN or Infinity"),
        ('{"a": ${STAGE},\n"b": 1}', "a", (1, 7), "a placeholder"),
        ('{"a": {{ stage }}}', "a", (1, 7), "a placeholder"),
        ('{"a": GLOBAL_BATCH, "b": 1}', "a", (1, 7), "a placeholder"),
        ('{"a": cpu, "b": 1}', "a", (1, 7), "text without quotes (cpu)"),
        ("a:\n  b: 1\n", "a", (2, 3), "a key and its value, read as text"),
        ('{"a": true "b": 1}', "b", (1, 11), "a missing comma"),
        ('{"a": 1,, "b": 1}', "", (1, 9), "an extra comma"),
        ('{"a": ,}', "a", (1, 7), "a missing value"),
        ('{"a" 1}', "a", (1, 6), "a missing colon"),
        ('{"a" = 1}', "a", (1, 6), "an equals sign"),
        ('{"a": "x\n}', "a", (1, 7), "a missing quote"),
        ('{"a: 1, "b": 2}', "", (1, 2), "a missing quote"),
        ('{"a": x"}', "a", (1, 7), "a missing quote"),
        ('{"a": “x”}', "a", (1, 7), "typographic quotes"),
        ('{"a": "C:\\data"}', "a", (1, 10), "a backslash"),
        ('{"a": {"b": 1}', "", (1, 1), "a missing closing bracket"),
        ('{\n "a": {\n  "b": 1,\n "c": 2\n}', "a", (4, 2), "a missing closing bracket"),
        ('{"a": [1, 2}', "a", (1, 7), "a missing closing bracket"),
        ('{"a": 1}}', "", (1, 9), "a closing bracket that closes nothing"),
        ('{"a": 1} b', "", (1, 10), "text after the end"),
    ],
)
def test_a_syntax_fault_is_reported_at_its_place(
    text: str, field: str, place: tuple[int, int], fault: str
) -> None:
    reading = read_json(text, Launcher.DEEPSPEED)
    assert reading.value is None
    [found] = reading.findings
    assert (found.field, found.severity) == (field, Severity.ERROR)
    assert (found.line, found.column) == place
    assert fault in found.message
    assert found.suggestion


def test_a_decimal_comma_is_its_own_rule() -> None:
    assert _one('{"a": 0,01}')[0] == "decimal-comma"


def test_a_key_given_twice_is_an_error_for_both() -> None:
    text = '{"a": {"b": 1,\n  "b": 2}}'
    for launcher in READERS:
        assert _one(text, launcher) == ("duplicate-key", "a.b", Severity.ERROR, 2, 3)
        assert read_json(text, launcher).value == {"a": {"b": 2}}


def test_a_template_is_one_finding() -> None:
    [found] = read_json('{"a": ${a},\n"b": ${b},\n"c": ${c}\n}', Launcher.HF).findings
    assert "(${a}) and 2 more" in found.message


def test_json_of_python_with_nan_is_a_warning_for_hugging_face() -> None:
    assert _one('{"a": Infinity}', Launcher.HF) == ("not-readable", "a", Severity.WARNING, 1, 7)


@given(_configs, st.data(), st.sampled_from(READERS))
def test_a_damaged_text_is_reported_or_read_as_the_launcher_reads_it(
    config: dict[str, Any], data: st.DataObject, launcher: Launcher
) -> None:
    text = json.dumps(config, indent=1)
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.text(max_size=2)) + text[at + 1 :]
    reading = read_json(damaged, launcher)
    if reading.value is None:
        assert reading.findings or damaged.strip() == "null"
    elif not any(found.severity is Severity.ERROR for found in reading.findings):
        expected = hjson.loads(damaged) if launcher is Launcher.DEEPSPEED else json.loads(damaged)
        assert json.dumps(reading.value) == json.dumps(expected)
