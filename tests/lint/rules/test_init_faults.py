"""What the rules say of a config is what the real `deepspeed.initialize` does with it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.lint.check import lint
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.rules import RULES
from tests.lint.rules.init_faults import FAULTS, InitFault

ROOT = Path(__file__).parents[3]
TITLES = [f"{fault.rule}-{number}" for number, fault in enumerate(FAULTS)]


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str | None, str | None]]:
    """What DeepSpeed says of the bad and of the good config, by title; one process for all."""
    questions = [fault.question(config) for fault in FAULTS for config in fault.configs()]
    done = subprocess.run(
        [sys.executable, "-m", "tests.lint.rules.initialize_all"],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        timeout=280,
        # DeepSpeed's tuner writes where it runs.
        cwd=tmp_path_factory.mktemp("initialize"),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout)
    return dict(zip(TITLES, zip(answers[::2], answers[1::2], strict=True), strict=True))


@pytest.mark.parametrize("title", TITLES)
def test_deepspeed_refuses_the_bad_config_and_trains_the_good_one(
    title: str, refusals: dict[str, tuple[str | None, str | None]]
) -> None:
    fault = FAULTS[TITLES.index(title)]
    bad, good = refusals[title]
    assert bad is not None
    assert re.search(fault.refusal, bad), bad
    assert good is None


@pytest.mark.parametrize("fault", FAULTS, ids=TITLES)
def test_the_rule_finds_the_bad_config_and_nobody_complains_of_the_good_one(
    fault: InitFault,
) -> None:
    bad, good = fault.configs()
    found = {finding.rule for finding in lint(fault.subject(bad))}
    assert fault.rule in found
    errors = [f for f in lint(fault.subject(good)) if f.severity is Severity.ERROR]
    assert errors == []
    assert fault.rule not in {finding.rule for finding in lint(fault.subject(good))}


NOT_ON_A_CPU = {
    "amsgrad": "DeepSpeed's Adam would be compiled",
    "aio-value": "needs libaio",
    "curriculum-schedule": "needs a data set and its index",
    "expert-parallel": "needs a model of experts",
    "lamb-loss-scale": "Lamb exists for CUDA only",
    "nvme-buffer-count": "needs libaio",
    "nvme-buffer-size": "needs libaio",
    "offload-lamb": "Lamb exists for CUDA only",
    "offload-optimizer-stage": "on a CPU rank every parameter is on the CPU",
    "super-offload": "SuperOffload refuses a CPU rank",
}


def test_every_rule_about_initialize_is_held_against_deepspeed() -> None:
    at_init = {rule.id for rule in RULES if rule.refused_by is RefusedBy.INIT}
    assert at_init - {fault.rule for fault in FAULTS} == NOT_ON_A_CPU.keys()
