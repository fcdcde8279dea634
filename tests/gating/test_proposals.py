"""Configs that `autotune run` builds pass the gate: rules and search agree."""

import json
import os
import subprocess
import sys

import pytest

from autotune.lint.finding import Severity
from autotune.search.prelaunch_lint import lint_for, refusal
from tests.gating.proposals import drawn

pytestmark = pytest.mark.timeout(300)

NUM_DRAWN = 400
SPEED_ONLY = {"small-reduce-bucket"}
"""Rules about speed alone: the space holds such values, and the search measures them."""


def test_every_config_that_run_can_build_passes_the_gate() -> None:
    faults = [
        (candidate.source, workload.world_size, finding.rule, finding.message)
        for candidate, workload in drawn(NUM_DRAWN, seed=7)
        for finding in lint_for(workload, candidate.ds_config)
        if finding.severity is Severity.ERROR
        or (finding.severity is Severity.WARNING and finding.rule not in SPEED_ONLY)
    ]
    assert faults == []


def test_no_proposal_is_refused_before_its_launch() -> None:
    assert all(refusal(candidate, workload) is None for candidate, workload in drawn(100, seed=8))


def test_a_config_with_an_error_is_refused() -> None:
    (candidate, workload), *_ = drawn(1, seed=9)
    broken = {**candidate.ds_config, "zero_optimization": {"stage": 7}}
    outcome = refusal(type(candidate)(source="base", ds_config=broken, model_settings={}), workload)
    assert outcome is not None
    assert outcome.status == "invalid"
    assert outcome.failure is not None
    assert outcome.failure.reason.startswith("not launched: zero_optimization.stage=7: must be")


def test_the_real_deepspeed_parses_drawn_configs() -> None:
    some = list(drawn(40, seed=10))
    questions = [
        {"ds_config": dict(candidate.ds_config), "world_size": workload.world_size}
        for candidate, workload in some
    ]
    done = subprocess.run(
        [sys.executable, "-m", "autotune.trial.ask_deepspeed"],
        input=json.dumps({"questions": questions}),
        capture_output=True,
        text=True,
        env=os.environ | {"DS_ACCELERATOR": "cpu"},
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    refusals = json.loads(done.stdout.splitlines()[-1])["refusals"]
    assert refusals == [None] * len(some)


def test_a_few_drawn_configs_initialise_and_step() -> None:
    questions = []
    for candidate, workload in drawn(200, seed=11):
        offloads = "cpu" in json.dumps(candidate.ds_config)
        on_cpu = workload.optimizer["params"].get("torch_adam") and workload.precision == "bf16"
        if on_cpu and not offloads and workload.world_size in (1, 2):
            questions.append(
                {"ds_config": dict(candidate.ds_config), "world_size": workload.world_size}
            )
    questions = questions[:6]
    assert len(questions) == 6
    done = subprocess.run(
        [sys.executable, "-m", "tests.lint.rules.initialize_all"],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [None] * len(questions)
