"""The file of accepted findings."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from autotune.errors import GateError
from autotune.gating import GateResult, gate
from autotune.gating.accepted import read_accepted, write_accepted
from autotune.lint.finding import Severity, Verdict
from tests.asked import gate_request
from tests.gating.records import write

CONFIG = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "stge": 3}}
STGE = {"rule": "unknown-key", "field": "zero_optimization.stge", "reason": "a fork reads it"}
TODAY = datetime.now(UTC).date()


def _gated(folder: Path, entries: object) -> GateResult:
    accepted = write(folder / "accepted.json", entries)
    config = write(folder / "ds_config.json", CONFIG)
    return gate(gate_request(ds_config=str(config), accepted=accepted))


def test_an_accepted_finding_does_not_count_and_is_listed(tmp_path: Path) -> None:
    assert _gated(tmp_path, []).verdict is Verdict.ERROR
    result = _gated(tmp_path, [STGE])
    assert result.verdict is Verdict.OK
    assert result.findings == ()
    assert [f.field for f in result.accepted] == ["zero_optimization.stge"]


@pytest.mark.parametrize("other", [{"rule": "deprecated"}, {"field": "zero_optimization"}])
def test_an_entry_accepts_only_its_rule_and_field(tmp_path: Path, other: dict[str, str]) -> None:
    assert _gated(tmp_path, [STGE | other]).verdict is Verdict.ERROR


def test_an_expired_entry_has_no_effect(tmp_path: Path) -> None:
    until = {"until": str(TODAY)}
    assert _gated(tmp_path, [STGE | until]).verdict is Verdict.OK
    result = _gated(tmp_path, [STGE | {"until": str(TODAY - timedelta(days=1))}])
    assert result.verdict is Verdict.ERROR
    notes = [f for f in result.findings if f.severity is Severity.NOTE]
    assert "it expired on" in notes[0].message


def test_an_entry_that_matches_nothing_is_a_note(tmp_path: Path) -> None:
    result = _gated(tmp_path, [STGE, STGE | {"field": "fp16.stge"}])
    (note,) = result.findings
    assert (note.rule, note.field) == ("unused-acceptance", "fp16.stge")
    assert note.severity is Severity.NOTE
    assert result.verdict is Verdict.OK


def test_yaml_dates_are_read(tmp_path: Path) -> None:
    path = tmp_path / "accepted.yaml"
    path.write_text(
        "- rule: type\n  field: a.b\n  reason: why\n  until: 2027-01-31\n", encoding="utf-8"
    )
    (entry,) = read_accepted(path)
    assert entry.until == date(2027, 1, 31)
    path.write_text("", encoding="utf-8")
    assert read_accepted(path) == ()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, None),
        ({"rule": "type"}, "must be a list of entries"),
        ([7], "entry 1: 7: must be a mapping with rule, field, reason"),
        ([STGE, {**STGE, "reason": " "}], "entry 2: reason must be a text and not empty"),
        ([{"rule": "type", "reason": "x"}], "entry 1: field must be a text"),
        ([{**STGE, "why": 1}], "entry 1: why: not a key of an entry"),
        ([{**STGE, "until": "soon"}], "until='soon': must be a date, such as"),
        ([{**STGE, "until": 7}], "until=7: must be a date"),
        ([{**STGE, "rule": "unknown-kei"}], "no such rule; did you mean unknown-key"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, entries: object, message: str | None) -> None:
    if message is None:
        assert _gated(tmp_path, entries).accepted == ()
        return
    with pytest.raises(GateError, match=message):
        _gated(tmp_path, entries)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="no such file; --write-accepted writes one"):
        read_accepted(tmp_path / "no.yaml")
    (tmp_path / "bad.yaml").write_text("- [", encoding="utf-8")
    with pytest.raises(GateError, match="not readable as YAML or JSON"):
        read_accepted(tmp_path / "bad.yaml")


def test_new_entries_are_added_and_existing_ones_kept(tmp_path: Path) -> None:
    kept = {"rule": "type", "field": "a", "reason": "long known", "until": "2999-01-01"}
    path = write(tmp_path / "accepted.yaml", [kept])
    found = _gated(tmp_path, []).findings
    assert write_accepted(path, found) == 1
    assert write_accepted(path, found) == 0
    first, second = read_accepted(path)
    assert (first.reason, first.until) == ("long known", date(2999, 1, 1))
    assert (second.rule, second.field) == ("unknown-key", "zero_optimization.stge")
    assert second.reason.startswith("not reviewed yet")
    assert json.loads((tmp_path / "accepted.json").read_text(encoding="utf-8")) == []
