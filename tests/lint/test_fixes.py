"""What `--fix` applies removes its fault, and breaks nothing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from autotune.lint.check import lint
from autotune.lint.finding import Finding, RefusedBy
from autotune.lint.subject import Launch, Subject
from tests.lint.cases import errors
from tests.lint.mutations import mutated, seed_configs

COUNT = 1_500
SEED = 21
RENAMING = frozenset({"unknown-key"})
"""A key that gets its right name is looked at for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A config before and after the fix of one of its findings."""

    before: dict[str, Any]
    found: tuple[Finding, ...]
    finding: Finding
    after: dict[str, Any]


def found_in(config: dict[str, Any]) -> tuple[Finding, ...]:
    return lint(Subject(config=config, launch=Launch(gpus=8)))


def refused(found: Iterable[Finding]) -> bool:
    """Whether DeepSpeed refuses a config while it reads it, which the rules know in full."""
    return any(finding.refused_by is RefusedBy.PARSE for finding in errors(found))


def all_fixes() -> Iterator[Fixed]:
    for config in [*seed_configs(), *mutated(SEED, COUNT)]:
        found = found_in(config)
        for finding in found:
            if finding.fix is not None:
                after = finding.fix.applied(config)
                yield Fixed(before=config, found=found, finding=finding, after=after)


@pytest.fixture(scope="module")
def fixes() -> list[Fixed]:
    return list(all_fixes())


def test_a_fix_removes_its_fault(fixes: list[Fixed]) -> None:
    assert len({fixed.finding.rule for fixed in fixes}) >= 8
    left = [
        fixed
        for fixed in fixes
        if (fixed.finding.rule, fixed.finding.field)
        in [(finding.rule, finding.field) for finding in found_in(fixed.after)]
    ]
    assert left == []


def test_a_config_that_deepspeed_reads_is_read_after_the_fix(fixes: list[Fixed]) -> None:
    broken = [
        fixed
        for fixed in fixes
        if fixed.finding.rule not in RENAMING
        and not refused(fixed.found)
        and refused(found_in(fixed.after))
    ]
    assert broken == []
