"""The rules and the real `DeepSpeedConfig` agree on what is refused while a config is read."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from autotune.lint.check import lint
from autotune.lint.finding import Finding, RefusedBy
from autotune.lint.subject import Launch, Subject
from tests.lint.cases import errors
from tests.lint.mutations import mutated, seed_configs

GPUS = 8
COUNT = 2_000
SEED = 4
NEEDS_CUDA = "GDS currently only supported for CUDA accelerator"
"""A refusal of this machine, not of the config."""


EARLY_OR_LATE = frozenset({"sequence-parallel-size", "type"})
"""Rules whose faults DeepSpeed meets while it reads a config or later, by what stands beside them:
its arithmetic takes some odd values as they come."""


def refusals(configs: list[dict[str, Any]]) -> list[str | None]:
    """Ask the real DeepSpeed about all configs in one process."""
    questions = [{"ds_config": config, "world_size": GPUS} for config in configs]
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "autotune.trial.ask_deepspeed"],
        input=json.dumps({"questions": questions}),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"DS_ACCELERATOR": "cpu"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)["refusals"]  # type: ignore[no-any-return]


def disagreement(config: dict[str, Any], refusal: str | None) -> str | None:
    """Return how the rules and DeepSpeed differ over a config; None if they agree."""
    if refusal is not None and NEEDS_CUDA in refusal:
        return None
    everything = errors(lint(Subject(config=config, launch=Launch(gpus=GPUS))))
    found = [finding for finding in everything if finding.refused_by is RefusedBy.PARSE]
    reported = "; ".join(f"{finding.rule}: {finding.message}" for finding in found)
    if refusal is None:
        return f"only the rules refuse: {reported}" if found else None
    if not found:
        if any(finding.rule in EARLY_OR_LATE for finding in everything):
            return None
        return f"only DeepSpeed refuses: {refusal}"
    place = re.match(r"ValidationError: \d+ validation errors? for \w+ (\w[\w.]*) ", refusal)
    if place and not any(_is_at(finding, place[1]) for finding in found):
        return f"other fields: {refusal}: {reported}"
    return None


def _is_at(finding: Finding, place: str) -> bool:
    """Whether a finding is about what pydantic names; a section's validator names no field."""
    names = set(finding.field.split("."))
    return place[0].isupper() or not names.isdisjoint(place.split("."))


@pytest.mark.parametrize("kind", ["cases", "mutations"])
def test_rules_and_deepspeed_refuse_the_same_configs(kind: str) -> None:
    configs = seed_configs() if kind == "cases" else list(mutated(SEED, COUNT))
    answers = refusals(configs)
    if kind == "mutations":
        # Neither side may win by default.
        share = sum(answer is not None for answer in answers) / COUNT
        assert 0.2 < share < 0.8
    differences = [
        f"{difference}\n    {json.dumps(config)}"
        for config, answer in zip(configs, answers, strict=True)
        if (difference := disagreement(config, answer)) is not None
    ]
    assert not differences, f"{len(differences)}:\n" + "\n".join(differences[:20])
