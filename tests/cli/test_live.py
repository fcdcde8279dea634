"""The progress of a search on stderr without a terminal."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.cli.live import live_progress
from autotune.study.candidate import Candidate
from autotune.study.outcome import Failure, Outcome, Status
from tests.search.setting import setting

CANDIDATE = Candidate(source="hf-auto", ds_config={}, model_settings={})


def test_a_log_has_a_line_for_each_trial(capsys: pytest.CaptureFixture[str]) -> None:
    failure = Failure(reason="ran out by much", rank=0)
    outcome = Outcome(status=Status.OVER_CEILING, evaluator="measured", failure=failure)
    with live_progress(max_trials=8) as progress:
        progress.noted("something was decided")
        progress.remaining(num_launched=3, left_s=120.0)
        progress.launched("trial-0002", CANDIDATE)
        progress.finished("trial-0002", CANDIDATE, outcome)
    printed = capsys.readouterr()
    assert printed.out == ""
    decided, ended = printed.err.splitlines()
    assert decided == "something was decided"
    expected = "trial-0002 over_ceiling hf-auto ran out by much (about 2 min left)"
    assert " ".join(ended.split()) == expected


def test_a_reason_of_many_lines_stays_on_one(capsys: pytest.CaptureFixture[str]) -> None:
    failure = Failure(reason="first\nsecond", rank=0)
    outcome = Outcome(status=Status.CRASHED, evaluator="measured", failure=failure)
    with live_progress(max_trials=8) as progress:
        progress.finished("trial-0002", CANDIDATE, outcome)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_emulated_speed_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = setting(tmp_path / "s", ceiling_bytes=2**40)
    here.search(trials=1)
    outcome = here.evaluator._outcome(here.evaluator.requests[0])
    with live_progress(max_trials=8) as progress:
        progress.finished("trial-0000", CANDIDATE, outcome)
        progress.finished("trial-0001", CANDIDATE, replace(outcome, evaluator="emulated"))
    measured, emulated = capsys.readouterr().err.splitlines()
    assert measured.endswith(" tokens/s")
    assert emulated.endswith(" tokens/s, emulated")
