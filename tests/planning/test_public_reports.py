"""Runs that others reported: plan and gate give one answer about each, mostly the reported one."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.gating import gate
from autotune.gating.request import GateRequest
from autotune.gating.result import GateResult
from autotune.job.job import Job
from autotune.job.launcher import Launcher
from autotune.job.resolve import ResolvedJob
from autotune.planning import PlanRequest, plan_config
from autotune.planning.memory_answer import MemoryAnswer, judge_memory
from autotune.predict.memory.fit import Answer

FOLDER = Path(__file__).parents[1] / "reports"
REPORTS = tuple(sorted(path.name for path in FOLDER.iterdir()))
LEAST_SHARE = 0.9
"""Of the reports whose verdict has to come out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The answers of both commands about one report."""

    expected: str | None
    """`fits` or `does_not_fit`; None where the report stands for speed only."""
    job: ResolvedJob
    plan: MemoryAnswer
    gate: GateResult


def read_report(name: str) -> dict[str, Any]:
    report: dict[str, Any] = yaml.safe_load(
        (FOLDER / name / "report.yaml").read_text(encoding="utf-8")
    )
    return report


def job_of(name: str) -> Job:
    """Return what a report states; what it does not state stays open."""
    report = read_report(name)
    hardware, training = report["hardware"], report["training"]
    host_gb = hardware.get("host_ram_gb")
    return Job(
        model=str(FOLDER / name / "model"),
        trainable_params=report["model"].get("trainable_params"),
        seq_len=training["seq_len"],
        activation_checkpointing=training.get("activation_checkpointing"),
        attn_implementation=training.get("attn_implementation"),
        gpus=hardware["gpus"],
        nodes=hardware["nodes"],
        gpu_type=hardware["gpu_type"],
        host_memory=None if host_gb is None else f"{host_gb}GB",
        launcher=Launcher(report["launcher"]),
    )


def request_of(name: str) -> PlanRequest:
    """Return what plan is asked about a report."""
    return PlanRequest(job=job_of(name), ds_config=FOLDER / name / "ds_config.json")


@cache
def judged(name: str) -> Judged:
    """Return the answers about a report, asked once."""
    resolved = request_of(name).resolved
    ds_config = str(FOLDER / name / "ds_config.json")
    return Judged(
        expected=read_report(name)["expected"]["verdict"],
        job=resolved,
        # The whole plan searches the fewest GPUs too, which takes long.
        plan=judge_memory(resolved),
        gate=gate(GateRequest(job=job_of(name), ds_config=ds_config)),
    )


LATER: dict[str, str] = {
    "A05": "fused cross-entropy: the run never held all logits at once",
}
"""Reports whose verdict takes an ability that is not there yet, and which."""
SPEED_ONLY = frozenset(name for name in REPORTS if read_report(name)["expected"]["verdict"] is None)
"""Runs of another framework, which stand for their speed."""
DECIDED = tuple(name for name in REPORTS if name not in SPEED_ONLY and name not in LATER)


@pytest.mark.parametrize("name", REPORTS)
def test_plan_and_gate_give_one_answer(name: str) -> None:
    result = judged(name)
    assert result.plan.to_json() == result.gate.answer.to_json()
    assert result.plan.reason == result.gate.answer.reason
    assert result.job.to_json() == result.gate.job.to_json()


def test_what_plan_prints_is_that_answer() -> None:
    plan = plan_config(request_of("A03a")).to_json()
    assert plan["memory"]["answer"] == judged("A03a").plan.answer == Answer.DOES_NOT_FIT
    assert plan["memory"]["odds"] == judged("A03a").plan.odds


def test_nine_of_ten_reports_come_out() -> None:
    wrong = {
        name: f"reported {judged(name).expected}, answered {judged(name).plan.answer}"
        for name in DECIDED
        if judged(name).plan.answer != judged(name).expected
    }
    assert len(wrong) <= (1 - LEAST_SHARE) * len(DECIDED), wrong


def test_nothing_that_ran_is_refused() -> None:
    for name in DECIDED:
        result = judged(name)
        refused = result.plan.answer is Answer.DOES_NOT_FIT
        assert not (refused and result.expected == Answer.FITS), name


def test_what_comes_later_is_a_report() -> None:
    assert set(LATER) <= set(REPORTS) - SPEED_ONLY
