"""A candidate that the rules refuse is a trial, and is not launched."""

from pathlib import Path
from unittest.mock import patch

from autotune import dotted
from autotune.job.launcher import Launcher
from autotune.lint.check import lint
from autotune.lint.finding import Finding, Severity
from autotune.lint.subject import Subject
from autotune.search.prelaunch_lint import lint_for
from autotune.study.outcome import Status
from tests.search.setting import FEW_POINTS, setting, small_space, statuses, tiny_workload

OVERLAP = "zero_optimization.overlap_comm"


def _refusing_overlap(subject: Subject) -> tuple[Finding, ...]:
    if dotted.get(subject.config, OVERLAP) is True:
        finding = Finding(rule="x", severity=Severity.ERROR, field=OVERLAP, message="as if")
        return (finding,)
    return ()


def test_what_the_rules_refuse_is_invalid_and_never_launched(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", space=small_space(FEW_POINTS))
    with patch("autotune.search.prelaunch_lint.lint", _refusing_overlap):
        study = here.search(trials=14)
    launched = [dotted.get(request.ds_config, OVERLAP) for request in here.evaluator.requests]
    assert True not in launched
    refused = [
        record
        for record in study.records()
        if record.outcome is not None and record.outcome.status is Status.INVALID
    ]
    assert refused
    assert len(refused) + len(launched) == len(statuses(study.records())) == 14
    for record in refused:
        assert dotted.get(record.candidate.ds_config, OVERLAP) is True
        assert record.outcome is not None
        assert record.outcome.failure is not None
        assert record.outcome.failure.reason == "not launched: as if [x]"


def test_a_resumed_study_keeps_its_refused_trials(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", space=small_space(FEW_POINTS), on_disk=True)
    with patch("autotune.search.prelaunch_lint.lint", _refusing_overlap):
        here.search(trials=8)
        before = here.open(resume=True).stored
        assert Status.INVALID in statuses(before.records())
        study = here.search(trials=12, study=before)
    assert len(study.records()) == 12


def test_a_workload_gives_the_rules_its_ranks_and_launcher() -> None:
    seen: list[Subject] = []

    def watching(subject: Subject) -> tuple[Finding, ...]:
        seen.append(subject)
        return lint(subject)

    config = {"train_batch_size": 7, "train_micro_batch_size_per_gpu": 1}
    with patch("autotune.search.prelaunch_lint.lint", watching):
        found = lint_for(tiny_workload(), config, launcher=Launcher.HF)
    assert "train_batch_size" in [finding.field for finding in found]
    assert (seen[0].launch.gpus, seen[0].launch.launcher) == (2, Launcher.HF)
