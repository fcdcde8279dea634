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
from autotune.lint.subject import Launch, Subject
from tests.lint.rules.init_fault import GPUS, InitFault
from tests.lint.rules.init_faults import FAULTS
from tests.lint.rules.mixes import mixed

ROOT = Path(__file__).parents[3]
TITLES = [f"{fault.rule}-{number}" for number, fault in enumerate(FAULTS)]


MIXES = list(mixed(seed=5, count=40))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[str | None]:
    """DeepSpeed's answers for bad and good configs in turn, then for the mixes; one process."""
    questions = [fault.question(config) for fault in FAULTS for config in fault.configs()]
    questions += [{"ds_config": config, "world_size": GPUS} for config in MIXES]
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
    found: list[str | None] = json.loads(done.stdout)
    assert len(found) == len(questions)
    return found


@pytest.mark.parametrize("place", range(len(FAULTS)), ids=TITLES)
def test_deepspeed_refuses_the_bad_config_and_trains_the_good_one(
    place: int, answers: list[str | None]
) -> None:
    bad, good = answers[2 * place : 2 * place + 2]
    assert bad is not None
    assert re.search(FAULTS[place].refusal, bad), bad
    assert good is None


def test_rules_and_deepspeed_refuse_the_same_mixes(answers: list[str | None]) -> None:
    refused = answers[-len(MIXES) :]
    # Neither side may win by default.
    assert 0.2 < sum(answer is not None for answer in refused) / len(MIXES) < 0.8
    differences = []
    for config, answer in zip(MIXES, refused, strict=True):
        subject = Subject(config=config, launch=Launch(gpus=GPUS))
        errors = [f.message for f in lint(subject) if f.severity is Severity.ERROR]
        if bool(errors) != (answer is not None):
            differences.append(f"DeepSpeed: {answer}, rules: {errors}\n    {json.dumps(config)}")
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("fault", FAULTS, ids=TITLES)
def test_the_rule_finds_the_bad_config_and_no_rule_the_good_one(
    fault: InitFault,
) -> None:
    bad, good = fault.configs()
    found = {finding.rule for finding in lint(fault.subject(bad))}
    assert fault.rule in found
    errors = [f for f in lint(fault.subject(good)) if f.severity is Severity.ERROR]
    assert errors == []
    assert fault.rule not in {finding.rule for finding in lint(fault.subject(good))}


NOT_ON_A_CPU = {
    "aio-value": "needs libaio",
    "curriculum-schedule": "needs a data set and its index",
    "expert-parallel-zero-3": "needs a model of experts",
    "nvme-buffer-count": "needs libaio",
    "nvme-buffer-size": "needs libaio",
    "offload-lamb": "Lamb exists for CUDA only",
    "offload-optimizer-stage": "on a CPU rank every parameter is on the CPU",
    "super-offload": "SuperOffload refuses a CPU rank",
}


def test_every_rule_about_initialize_is_held_against_deepspeed() -> None:
    at_init = {rule.id for rule in RULES if rule.refused_by is RefusedBy.INIT}
    assert at_init - {fault.rule for fault in FAULTS} == NOT_ON_A_CPU.keys()
