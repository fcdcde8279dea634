"""The base config of `autotune run` before anything is started."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from autotune.errors import ConfigError
from autotune.gating.deepspeed_parser import ParserAnswer
from autotune.job.resolve import ResolvedJob, resolve_job
from autotune.lint.subject import Subject
from autotune.search.progress import Silent
from autotune.tuning.preflight import check_base
from tests.asked import tune_request
from tests.search.setting import tiny_workload

REQUEST = tune_request(model="tiny", gpus=2, base=Path("base.json"))


class _Notes(Silent):
    """Records notes."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def noted(self, text: str) -> None:
        self.texts.append(text)


def _resolved(base: dict[str, Any]) -> ResolvedJob:
    return resolve_job(REQUEST.job, subject=Subject(config=base))


def _check(base: dict[str, Any], *, refusal: str | None = None) -> tuple[list[str], int]:
    """Return the notes, and the number of calls to DeepSpeed."""
    notes = _Notes()
    answer = ParserAnswer(version="0.19.8", refusal=refusal)
    with patch("autotune.tuning.preflight.ask_deepspeed", return_value=answer) as asked:
        check_base(REQUEST, _resolved(base), tiny_workload(base=base), notes)
    return notes.texts, asked.call_count


def test_every_error_of_the_rules_is_named_and_deepspeed_is_not_asked() -> None:
    base = {"zero_optimization": {"stage": 2, "stge": 1}, "bf16": {"enabledd": True}}
    with (
        patch("autotune.tuning.preflight.ask_deepspeed") as asked,
        pytest.raises(ConfigError) as raised,
    ):
        check_base(REQUEST, _resolved(base), tiny_workload(), _Notes())
    assert [fault.split(":")[:2] for fault in raised.value.faults] == [
        ["base.json", " zero_optimization.stge"],
        ["base.json", " bf16.enabledd"],
    ]
    assert not asked.called


def test_a_warning_is_printed_and_the_study_continues() -> None:
    texts, num_asked = _check({"zero_optimization": {"stage": 3, "cpu_offload": True}})
    assert len(texts) == 1
    assert texts[0].startswith("base.json: warning: zero_optimization.cpu_offload")
    assert num_asked == 1


def test_a_clean_base_prints_nothing() -> None:
    assert _check({"zero_optimization": {"stage": 2}}) == ([], 1)


def test_the_real_deepspeed_has_the_last_word() -> None:
    with pytest.raises(ConfigError, match=r"base.json: DeepSpeed refuses it: as if"):
        _check({"zero_optimization": {"stage": 2}}, refusal="as if")
